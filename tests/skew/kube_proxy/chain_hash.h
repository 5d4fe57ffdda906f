// SPDX-License-Identifier: Apache-2.0
//
// The end of a service chain's name: 28 characters are all that a chain's name may have.
#ifndef KIPT_TESTS_SKEW_KUBE_PROXY_CHAIN_HASH_H_
#define KIPT_TESTS_SKEW_KUBE_PROXY_CHAIN_HASH_H_

#include <string>

namespace kipt::skew {

// The first 16 characters of the text's SHA-256 in base 32 (RFC 4648, upper case): its first ten
// bytes.
std::string ChainHash(const std::string& text);

}  // namespace kipt::skew

#endif  // KIPT_TESTS_SKEW_KUBE_PROXY_CHAIN_HASH_H_
