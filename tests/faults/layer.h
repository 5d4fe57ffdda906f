// SPDX-License-Identifier: Apache-2.0
//
// Of the preloaded library: when a fault is due, and how the C library is come to behind it.
#ifndef KIPT_TESTS_FAULTS_LAYER_H_
#define KIPT_TESTS_FAULTS_LAYER_H_

#include <dlfcn.h>

#include "tests/faults/control.h"

namespace kipt::testing {

// Null where nothing is preloaded for: everything is as it would be.
Control* TheControl();

bool Armed();

// Notes that `point` was come to. The fault that is to happen here, or null.
const FaultRow* Meet(Point point);

// SO_DOMAIN of a socket, -1 of anything else. errno is kept.
int DomainOf(int fd);

// The C library's own `name`.
template <typename Function>
Function* Real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

// Fails with the fault's errno.
int FailWith(const FaultRow& row);

}  // namespace kipt::testing

#endif  // KIPT_TESTS_FAULTS_LAYER_H_
