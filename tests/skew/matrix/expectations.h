// SPDX-License-Identifier: Apache-2.0
//
// What is expected of a packet on a node of which the facts are known, and why where that is not
// what a sound node would do.
#ifndef KIPT_TESTS_SKEW_MATRIX_EXPECTATIONS_H_
#define KIPT_TESTS_SKEW_MATRIX_EXPECTATIONS_H_

#include <optional>
#include <string>

#include "tests/skew/matrix/node_facts.h"
#include "tests/skew/matrix/test_services.h"
#include "tests/skew/probes/probe.h"

namespace kipt::skew {

struct Expectation {
  Outcome sound = Outcome::kServed;
  Outcome expected = Outcome::kServed;
  // The fact; empty where the two are the same.
  std::string because = {};
  // Where `expected` is kDropped by a fact: part of the rule that must have done it.
  std::string dropped_by = {};
  // What is as good as `expected`, where the two cannot always be told apart.
  std::optional<Outcome> or_else = {};

  bool Sound() const { return sound == expected; }
};

Expectation Expect(const FamilyFacts& facts, const Question& question);

// The same of a stream's packets: all are to be served, masqueraded, or none is to be received.
Expectation ExpectStream(const FamilyFacts& facts, const StreamQuestion& question);

// It got nowhere, whoever saw to that.
bool IsStopped(Outcome outcome);

// How bad it is, from 0 (sound): who is worse than another has a higher number. Letting through
// what should be dropped is worse than losing what should be served.
int Badness(Outcome sound, Outcome actual);

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_MATRIX_EXPECTATIONS_H_
