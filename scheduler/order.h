// order(): what is handed to which stream, in which order, and who waits for whom.
//
// Each device has one stream; copies run on the stream of the device that makes them. A step waits
// for a step of another stream only where it needs it (it reads what the other made, or writes
// bytes of a state that the other still reads) and only if no earlier wait implies it: vector
// clocks over streams tell. Nothing else orders anything.
//
// Pure. Linear in steps and operands, times the number of streams.
#pragma once

#include "scheduler/plan.h"

namespace tandem {

// `plan` has everything up to copies; fills steps and final_steps.
void OrderSteps(const Machine& machine, Plan& plan);

}  // namespace tandem
