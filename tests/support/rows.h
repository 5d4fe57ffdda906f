// SPDX-License-Identifier: Apache-2.0
//
// Lists in rows of tables: a row with braces inside takes a line for each of its values.
#ifndef KIPT_TESTS_SUPPORT_ROWS_H_
#define KIPT_TESTS_SUPPORT_ROWS_H_

#include <tuple>
#include <utility>

namespace kipt {

// Becomes the container that a row's struct has in that place.
template <typename... Values>
class ListOfValues {
 public:
  explicit ListOfValues(Values... values) : values_(std::move(values)...) {}

  template <typename Container>
  operator Container() const {  // NOLINT(google-explicit-constructor): replaces braces
    return std::apply(
        [](const auto&... values) { return Container{typename Container::value_type(values)...}; },
        values_);
  }

 private:
  std::tuple<Values...> values_;
};

template <typename... Values>
ListOfValues<Values...> List(Values... values) {
  return ListOfValues<Values...>(std::move(values)...);
}

}  // namespace kipt

#endif  // KIPT_TESTS_SUPPORT_ROWS_H_
