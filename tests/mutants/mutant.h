// SPDX-License-Identifier: Apache-2.0
//
// What tests/mutants/run writes into a copy of a source. Every mutant has a number; KIPT_MUTANT in
// the environment says which of them a process is, and without it the source means what it says.
#ifndef KIPT_TESTS_MUTANTS_MUTANT_H_
#define KIPT_TESTS_MUTANTS_MUTANT_H_

#include <algorithm>
#include <cstddef>
#include <deque>
#include <iterator>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace kipt_mutants {

inline constexpr int kMost = 40000;
extern int active;              // none: -1
extern unsigned char* reached;  // kMost + 1, by the test that runs, or before the first of them

inline bool Is(int mutant) {
  reached[mutant] = 1;
  return mutant == active;
}

inline void Touch(int first, int end) {
  for (int mutant = first; mutant < end; ++mutant) reached[mutant] = 1;
}

// Of each comparison, what it becomes. Templates, so that each operand is written and evaluated
// once.
template <typename A, typename B>
bool Equal(int mutant, const A& a, const B& b) {
  return Is(mutant) ? !(a == b) : a == b;
}
template <typename A, typename B>
bool Unequal(int mutant, const A& a, const B& b) {
  return Is(mutant) ? !(a != b) : a != b;
}
// The next one at the edge, and the opposite.
template <typename A, typename B>
bool Less(int edge, int opposite, const A& a, const B& b) {
  return Is(edge) ? a <= b : Is(opposite) ? a >= b : a < b;
}
template <typename A, typename B>
bool LessEqual(int edge, int opposite, const A& a, const B& b) {
  return Is(edge) ? a < b : Is(opposite) ? a > b : a <= b;
}
template <typename A, typename B>
bool Greater(int edge, int opposite, const A& a, const B& b) {
  return Is(edge) ? a >= b : Is(opposite) ? a <= b : a > b;
}
template <typename A, typename B>
bool GreaterEqual(int edge, int opposite, const A& a, const B& b) {
  return Is(edge) ? a > b : Is(opposite) ? a < b : a >= b;
}

// A cell that is a name: another text, the next value, or a function that makes nothing.
inline absl::string_view Cell(int mutant, absl::string_view text) {
  return Is(mutant) ? absl::string_view("another text") : text;
}
inline const char* Cell(int mutant, const char* text) { return Is(mutant) ? "another text" : text; }
template <typename T>
requires std::is_integral_v<T> || std::is_enum_v<T> T Cell(int mutant, T value) {
  return Is(mutant) ? static_cast<T>(static_cast<long long>(value) + 1) : value;
}
inline void* Cell(int mutant, void* value) { return Is(mutant) ? nullptr : value; }
template <typename R, typename... A>
auto Cell(int mutant, R (*function)(A...)) -> R (*)(A...) {
  return Is(mutant) ? +[](A...) -> R { return R{}; } : function;
}

// One of several flags: not set.
template <typename T>
T Flag(int mutant, T value) {
  return Is(mutant) ? T{} : value;
}

// Iterated by pointers, as std::array is.
template <typename T>
class RowsLeft : public std::vector<T> {
 public:
  const T* begin() const { return this->data(); }
  const T* end() const { return this->data() + this->size(); }
};

// The rows of a table less the one whose mutant runs; `first` is the first row's.
template <typename Rows>
auto WithoutOne(int first, const Rows& rows) {
  RowsLeft<typename Rows::value_type> left;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!Is(first + static_cast<int>(i))) left.push_back(rows[i]);
  }
  return left;
}
// The same where the table must keep its size: a neighbour takes the row's place.
template <typename T, size_t kRows>
bool OverwriteOne(int first, T (&rows)[kRows]) {
  for (size_t i = 0; i < kRows; ++i) {
    if (Is(first + static_cast<int>(i))) rows[i] = i + 1 < kRows ? rows[i + 1] : rows[i - 1];
  }
  return true;
}

// A list of names with a space between less the one whose mutant runs; `first` is the first name's.
inline absl::string_view WithoutName(int first, absl::string_view names) {
  static std::deque<std::string> kept;  // which keep their addresses
  std::string left;
  int name = first;
  for (size_t begin = 0; begin < names.size(); ++name) {
    const size_t end = std::min(names.find(' ', begin), names.size());
    if (!Is(name)) {
      left += (left.empty() ? "" : " ") + std::string(names.substr(begin, end - begin));
    }
    begin = end + 1;
  }
  return kept.emplace_back(std::move(left));
}

template <typename A, typename B>
auto Min(bool other, const A& a, const B& b) {
  return other ? std::max(a, b) : std::min(a, b);
}
template <typename A, typename B>
auto Max(bool other, const A& a, const B& b) {
  return other ? std::min(a, b) : std::max(a, b);
}
template <typename I, typename J, typename P>
bool AnyOf(bool other, I begin, J end, P predicate) {
  return other ? std::all_of(begin, end, predicate) : std::any_of(begin, end, predicate);
}
template <typename I, typename J, typename P>
bool AllOf(bool other, I begin, J end, P predicate) {
  return other ? std::any_of(begin, end, predicate) : std::all_of(begin, end, predicate);
}

}  // namespace kipt_mutants

#endif  // KIPT_TESTS_MUTANTS_MUTANT_H_
