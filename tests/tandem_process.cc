#include "tests/tandem_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "gtest/gtest.h"

extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions();

namespace tandem::testing_process {
namespace {

using Clock = std::chrono::steady_clock;

std::string Program() {
  const char* source = std::getenv("TEST_SRCDIR");
  const char* workspace = std::getenv("TEST_WORKSPACE");
  const std::string runfiles =
      source != nullptr ? source
                        : std::filesystem::read_symlink("/proc/self/exe").string() + ".runfiles";
  return runfiles + "/" + (workspace != nullptr ? workspace : "tandem") + "/tools/tandem";
}

// A file that is gone when the test ends.
class Scratch {
 public:
  Scratch(const std::string& name, const char* text)
      : path_(std::filesystem::temp_directory_path() /
              ("tandem-" + name + "-" + std::to_string(getpid()))) {
    std::ofstream(path_) << text;
  }
  ~Scratch() { std::filesystem::remove(path_); }
  std::string Option() const { return "print_suppressions=0:suppressions=" + path_.string(); }

 private:
  std::filesystem::path path_;
};

[[noreturn]] void Execute(const std::vector<std::string>& arguments,
                          const Surroundings& surroundings, int out, int err) {
  dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  for (const auto& [name, value] : surroundings.environment) setenv(name.c_str(), value.c_str(), 1);
  const std::string program = Program();
  std::vector<char*> argv = {const_cast<char*>("tandem")};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execv(program.c_str(), argv.data());
  perror(program.c_str());
  _exit(127);
}

// Reads both ends until both are closed; kills the process when its time is over.
void Collect(pid_t process, int out, int err, double seconds, Outcome* outcome) {
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  pollfd ends[] = {{out, POLLIN, 0}, {err, POLLIN, 0}};
  std::string* texts[] = {&outcome->out, &outcome->err};
  while (ends[0].fd >= 0 || ends[1].fd >= 0) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    if (left.count() <= 0 && !outcome->timed_out) {
      outcome->timed_out = true;
      kill(process, SIGKILL);
    }
    poll(ends, 2, outcome->timed_out ? -1 : static_cast<int>(std::max<int64_t>(left.count(), 0)));
    for (int i = 0; i < 2; ++i) {
      if ((ends[i].revents & (POLLIN | POLLHUP | POLLERR)) == 0) continue;
      char part[1 << 14];
      const ssize_t bytes = read(ends[i].fd, part, sizeof part);
      if (bytes > 0) {
        texts[i]->append(part, static_cast<size_t>(bytes));
      } else {
        close(ends[i].fd);
        ends[i] = {-1, 0, 0};
      }
    }
  }
}

}  // namespace

Outcome RunTandem(const std::vector<std::string>& arguments, const Surroundings& surroundings) {
  Surroundings prepared = surroundings;
  // The sanitizers' defaults are linked into tests only; the command gets them from here.
  static const Scratch leaks("leaks", __lsan_default_suppressions());
  static const Scratch races("races", __tsan_default_suppressions());
  prepared.environment.insert(prepared.environment.begin(),
                              {{"LSAN_OPTIONS", leaks.Option()}, {"TSAN_OPTIONS", races.Option()}});
  Outcome outcome;
  int out[2], err[2];
  if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) {
    ADD_FAILURE() << "no pipe";
    return outcome;
  }
  const int file =
      prepared.out_file.empty() ? -1 : open(prepared.out_file.c_str(), O_WRONLY | O_CLOEXEC);
  const auto start = Clock::now();
  const pid_t process = fork();
  if (process == 0) Execute(arguments, prepared, file >= 0 ? file : out[1], err[1]);
  for (const int end : {out[1], err[1], file})
    if (end >= 0) close(end);
  Collect(process, out[0], err[0], prepared.seconds, &outcome);
  int status = 0;
  waitpid(process, &status, 0);
  outcome.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

void ExpectRefused(const std::vector<std::string>& arguments, const std::vector<std::string>& words,
                   const Surroundings& surroundings) {
  std::string command = "tandem";
  for (const std::string& argument : arguments) command += " " + argument.substr(0, 200);
  SCOPED_TRACE(command);
  const Outcome outcome = RunTandem(arguments, surroundings);
  EXPECT_FALSE(outcome.timed_out);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_TRUE(outcome.err.starts_with("tandem: ")) << outcome.err;
  EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
  EXPECT_TRUE(outcome.err.ends_with('\n')) << outcome.err;
  for (const std::string& word : words)
    EXPECT_TRUE(outcome.Says(word)) << "no \"" << word << "\" in: " << outcome.err;
}

}  // namespace tandem::testing_process
