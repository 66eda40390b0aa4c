// The command `tandem` in a process of its own, as a user runs it.
//
//   const Outcome outcome = RunTandem({"run", model, "-p", "Hello"});
//   EXPECT_EQ(outcome.status, 0) << outcome.err;
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace tandem::testing_process {

struct Outcome {
  int status = 0;  // Of exit(); 128 and more: killed by that signal.
  bool timed_out = false;
  std::string out, err;
  double seconds = 0;

  bool Has(const std::string& text) const { return out.find(text) != std::string::npos; }
  bool Says(const std::string& text) const { return err.find(text) != std::string::npos; }
};

struct Surroundings {
  std::vector<std::pair<std::string, std::string>> environment{};  // On top of the test's own.
  std::string out_file{};                                          // Instead of a pipe.
  double seconds = 120;                                            // Then it is killed.
};

// Everything that the command did, after it ended.
Outcome RunTandem(const std::vector<std::string>& arguments, const Surroundings& surroundings = {});

// Fails the test unless the command refused as the contract says: status 1, nothing on stdout,
// one line on stderr, which has all of `words`.
void ExpectRefused(const std::vector<std::string>& arguments, const std::vector<std::string>& words,
                   const Surroundings& surroundings = {});

}  // namespace tandem::testing_process
