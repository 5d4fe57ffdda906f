// SPDX-License-Identifier: Apache-2.0
//
// File: agent/process/heap.h
//
// A look at all rules of a node with 10,000 services takes up to 60 MiB for a second. glibc would
// keep most of that for the next one, in ten minutes (malloc(3), mallopt(3)).
#ifndef KIPT_AGENT_PROCESS_HEAP_H_
#define KIPT_AGENT_PROCESS_HEAP_H_

namespace kipt::agent {

// Of the process, before it has threads: large blocks always go back to the kernel when they are
// freed, and threads that come and go have no heaps of their own, of which only the end ever would.
void KeepHeapSmall();

// All free pages go back to the kernel; takes some milliseconds where there are tens of MiB of
// them, else microseconds.
void GiveBackFreePages();

}  // namespace kipt::agent

#endif  // KIPT_AGENT_PROCESS_HEAP_H_
