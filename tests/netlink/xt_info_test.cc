// SPDX-License-Identifier: Apache-2.0
#include "netlink/xt_info.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <system_error>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "tests/netlink/wire_bytes.h"

namespace kipt::netlink {
namespace {

using namespace ::kipt::testing;  // NOLINT(google-build-using-namespace): the wire's vocabulary

TEST(XtInfoTest, TakesGarbageInPadding) {
  Bytes mark = XtMarkInfo(1, 2, 0);
  mark[9] = mark[15] = 0xaa;
  EXPECT_EQ(DecodeXtMark(mark), (MarkMatch{.value = 1, .mask = 2}));
  Bytes comment = XtCommentInfo("x");
  comment[7] = 'y';
  EXPECT_EQ(DecodeXtComment(comment), "x");
}

TEST(XtInfoTest, RefusesWhatARuleCannotExpress) {
  EXPECT_EQ(DecodeXtComment(Bytes(256, 'x')), std::nullopt) << "no end";
  EXPECT_EQ(DecodeXtMark(XtMarkInfo(1, 1, 2)), std::nullopt) << "neither negated nor not";
  EXPECT_FALSE(DecodeXtCtState(3, XtCtStateInfo(3, 0, 2))) << "a protocol, too";
  EXPECT_FALSE(DecodeXtCtState(3, XtCtStateInfo(2, 0, 2))) << "a protocol, no state";
  EXPECT_FALSE(DecodeXtCtState(3, XtCtStateInfo(1, 2, 2))) << "something else negated";
  EXPECT_FALSE(DecodeXtCtState(3, XtCtStateInfo(1, 0, 0))) << "no state";
  EXPECT_FALSE(DecodeXtCtState(3, XtCtStateInfo(1, 0, 0x200))) << "a state without a name";
  EXPECT_FALSE(DecodeXtCtState(4, XtCtStateInfo(1, 0, 2))) << "a later revision";
  for (const int label : {128, 256, 0x8000, 0xffff}) {
    EXPECT_EQ(DecodeXtConnLabel(XtConnLabelInfo(static_cast<uint16_t>(label), 0)), std::nullopt)
        << label;
  }
  for (const int options : {4, 5, 6, 8, 0x100, 0x8002}) {
    EXPECT_EQ(DecodeXtConnLabel(XtConnLabelInfo(1, static_cast<uint16_t>(options))), std::nullopt)
        << options;
  }
  EXPECT_EQ(DecodeXtMasquerade(Family::kIPv4, XtMasqueradeInfo(0x10, 2)), std::nullopt);
  for (const uint32_t flags : {0x1U, 0x2U, 0x4U, 0x8U, 0x11U, 0x20U}) {
    EXPECT_EQ(DecodeXtMasquerade(Family::kIPv4, XtMasqueradeInfo(flags)), std::nullopt) << flags;
    EXPECT_EQ(DecodeXtMasquerade(Family::kIPv6, XtMasqueradeInfo6(flags)), std::nullopt) << flags;
  }
}

TEST(XtInfoTest, ReadsTheStateOfEveryRevision) {
  const Bytes head = Join({Zeros(146), HostU16(1), HostU16(1)});
  const auto first = DecodeXtCtState(1, Join({head, {0x06, 0}}));
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->match, (CtStateMatch{.states = 0x06, .negated = true}));
  const auto second = DecodeXtCtState(2, Join({head, HostU16(0x86), Zeros(2), Zeros(2)}));
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->match, (CtStateMatch{.states = 0x86, .negated = true}));
  const auto alias = DecodeXtCtState(3, XtCtStateInfo(0x2001, 0, 2));
  ASSERT_TRUE(alias.has_value());
  EXPECT_TRUE(alias->state_alias);
}

TEST(XtInfoTest, RefusesEveryOtherSize) {
  const auto sizes_taken = [](auto decode) {
    std::string sizes;
    for (size_t size = 0; size < 300; ++size) {
      Bytes bytes(size, 0);
      // What makes the content valid where it is long enough.
      const Bytes one = HostU16(1);
      for (const ptrdiff_t at : {146, 150}) {
        if (size > 151) absl::c_copy(one, bytes.begin() + at);
      }
      if (decode(bytes)) sizes += std::to_string(size) + " ";
    }
    return sizes;
  };
  EXPECT_EQ(sizes_taken([](const Bytes& b) { return DecodeXtComment(b).has_value(); }), "256 ");
  EXPECT_EQ(sizes_taken([](const Bytes& b) { return DecodeXtMark(b).has_value(); }),
            "12 13 14 15 16 ");
  EXPECT_EQ(sizes_taken([](const Bytes& b) { return DecodeXtCtState(3, b).has_value(); }),
            "164 165 166 167 168 ");
  EXPECT_EQ(sizes_taken([](const Bytes& b) { return DecodeXtSetMark(b).has_value(); }), "8 ");
  // The kernel dumps it with its own size, or aligned to 8 bytes.
  EXPECT_EQ(sizes_taken([](const Bytes& b) { return DecodeXtConnLabel(b).has_value(); }),
            "4 5 6 7 8 ");
  EXPECT_EQ(
      sizes_taken([](const Bytes& b) { return DecodeXtMasquerade(Family::kIPv6, b).has_value(); }),
      "40 ");
}

// "mark", "MARK": what iptables can match and do, by the names of its plug-ins on this machine.
std::set<std::string> ExtensionsOfIptables() {
  std::set<std::string> names;
  for (const auto& folder : std::filesystem::directory_iterator("/usr/lib")) {
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path() / "xtables", none)) {
      const std::string stem = entry.path().stem();
      for (const absl::string_view prefix : {"libxt_", "libipt_", "libip6t_"}) {
        if (absl::StartsWith(stem, prefix)) names.insert(stem.substr(prefix.size()));
      }
    }
  }
  return names;
}

TEST(XtInfoTest, KnowsOfEachExtensionOfIptablesWhetherItUsesTheMark) {
  const std::set<std::string> use_it = {"bpf", "mark", "rpfilter", "socket", "CONNMARK", "HMARK",
                                        "MARK", "NFQUEUE", "SET", "TPROXY",
                                        // No extensions: jumps, and what DNAT and SNAT share.
                                        "standard", "NAT"};
  std::set<std::string> names = ExtensionsOfIptables();
  EXPECT_GE(names.size(), 90U) << "iptables is missing";
  // The kernel's, without a plug-in in Debian.
  names.insert({"l2tp", "udplite"});
  for (const std::string& name : names) {
    const bool is_match = absl::AsciiStrToLower(name) == name;
    const bool without = use_it.count(name) == 0;
    EXPECT_EQ(IsMatchWithoutMark(name), is_match && without) << name;
    EXPECT_EQ(IsTargetWithoutMark(name), !is_match && without) << name;
  }
}

}  // namespace
}  // namespace kipt::netlink
