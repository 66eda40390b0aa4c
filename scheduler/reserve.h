// reserve(): which replicas may share memory, and where each lies in its arena.
//
// A replica may take the bytes of another when its making comes after the last use of the other,
// by stream order and waits: never because of its place in a list. For each memory the makings are
// numbered in the order in which they are handed over; a replica is live from its own number to
// the first number from which on every making comes after its last uses. That turns the partial
// order into intervals that are safe (and tight where streams take turns), which the planner of
// allocator/ packs.
//
// Pure. n log n in replicas, times the number of streams.
#pragma once

#include "scheduler/plan.h"

namespace tandem {

// `plan` has everything up to steps; fills the offsets of arena replicas and scratch, and arenas.
// Errors: a tensor that is larger than the largest buffer of its memory (named).
Result<void> PlaceInArenas(const Machine& machine, const PlanOptions& options, Plan& plan);

}  // namespace tandem
