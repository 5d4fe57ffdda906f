// SPDX-License-Identifier: Apache-2.0
//
// File: agent/process/standard_streams.h
//
// The descriptors 0 to 2 of a program, which its parent may have closed, broken or filled.
#ifndef KIPT_AGENT_PROCESS_STANDARD_STREAMS_H_
#define KIPT_AGENT_PROCESS_STANDARD_STREAMS_H_

namespace kipt::agent {

// Opens /dev/null on each of the descriptors 0 to 2 that is closed, so that no socket gets their
// number and receives what is printed. Reading or writing there still fails: output is never lost
// unnoticed. Call it before the program opens anything.
void OccupyStandardDescriptors();

// Flushes std::cout. Returns `exit_code` where everything was written; else prints an error and
// returns 1.
int FinishOutput(int exit_code);

}  // namespace kipt::agent

#endif  // KIPT_AGENT_PROCESS_STANDARD_STREAMS_H_
