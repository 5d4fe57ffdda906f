// SPDX-License-Identifier: Apache-2.0
//
// File: netlink/native_decoder.h
//
// Native tables as the kernel dumps them: in our own form, and in what nft(8) writes for the same
// words.
#ifndef KIPT_NETLINK_NATIVE_DECODER_H_
#define KIPT_NETLINK_NATIVE_DECODER_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "netlink/attributes.h"
#include "netlink/native_table.h"

namespace kipt::netlink {

// Of every chain.
inline constexpr char kNativeChainType[] = "filter";

// Puts a table together from what the kernel dumps of it, in any order but that of the rules of one
// chain. Takes any bytes: what is not exactly of the vocabulary makes the table altered.
class NativeTableDecoder {
 public:
  NativeTableDecoder(Family family, std::string name);

  // Messages of NFT_MSG_NEWTABLE, NEWCHAIN, NEWRULE, their nlmsghdr included. They must be of this
  // table.
  void AddTable(WireBytes message);
  void AddChain(WireBytes message);
  void AddRule(WireBytes message);
  // A set, a map, an object, a flow table.
  void AddOther() { observed_.altered = true; }

  // How many chains, sets, objects and flow tables the table says it has (NFTA_TABLE_USE).
  uint32_t use() const { return use_; }
  // The chains that have rules.
  std::set<std::string> ChainsOfRules() const;

  ObservedNativeTable Finish() &&;

 private:
  ObservedNativeTable observed_;
  uint32_t use_ = 0;
  std::map<std::string, NativeChain> chains_;
  std::map<std::string, std::vector<NativeDrop>> rules_;
};

}  // namespace kipt::netlink

#endif  // KIPT_NETLINK_NATIVE_DECODER_H_
