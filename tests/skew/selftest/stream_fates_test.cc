// SPDX-License-Identifier: Apache-2.0
#include "tests/skew/probes/stream_fates.h"

#include <gtest/gtest.h>

namespace kipt::skew {
namespace {

StreamFates Of(int sent) {
  StreamFates fates;
  for (int i = 0; i < sent; ++i) fates.Sent();
  return fates;
}

TEST(StreamFatesTest, CountsEveryPacketOnceAndGapsByNumber) {
  StreamFates fates = Of(10);
  fates.Received(9, Fate::kServedMasqueraded);
  fates.Received(0, Fate::kServed);
  fates.Received(0, Fate::kReachedHost);
  fates.Received(3, Fate::kServed);
  // Received by the wrong ones: a gap nevertheless.
  fates.Received(4, Fate::kReachedHost);
  fates.Received(5, Fate::kForwarded);
  fates.Received(6, Fate::kOther);
  fates.Received(10, Fate::kServed);  // never sent
  const StreamCount count = fates.Take(10);
  EXPECT_EQ(count.Silent(), 4U);
  EXPECT_EQ(count, (StreamCount{.probe = "",
                                .sent = 10,
                                .served = 2,
                                .served_masqueraded = 1,
                                .reached_host = 1,
                                .forwarded = 1,
                                .other = 1,
                                .longest_gap = 5}));
}

TEST(StreamFatesTest, GivesEachPacketToOneTaking) {
  StreamFates fates = Of(6);
  fates.Received(5, Fate::kServed);
  EXPECT_EQ(fates.Take(4).sent, 4U);
  fates.Received(3, Fate::kServed);  // too late
  const StreamCount rest = fates.Take(6);
  EXPECT_EQ(rest.sent, 2U);
  EXPECT_EQ(rest.served, 1U);
  EXPECT_EQ(fates.Take(6).sent, 0U);
  EXPECT_EQ(fates.sent(), 6U);
}

}  // namespace
}  // namespace kipt::skew
