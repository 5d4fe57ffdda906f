// SPDX-License-Identifier: Apache-2.0
//
// Another program starts to use a chain after a check found it unused and before the transaction
// that removes it.
#include "tests/interop/retire_fixture.h"

namespace kipt::testing {
namespace {

constexpr char kTheirJump[] = "nat: -A THEIRS -p tcp -j KUBE-MARK-MASQ";

// Wraps iptables-legacy-save and -restore, and runs the script in the file `meanwhile` once: after
// the SAVES-th reading of IPv4, or before the first restore.
constexpr char kWrapper[] = R"sh(
meanwhile() {
  [ -e "$dir/meanwhile" ] || return
  mv "$dir/meanwhile" "$dir/done"
  PATH=/usr/sbin:/usr/bin:/sbin:/bin XTABLES_LOCKFILE="$dir/lock" sh "$dir/done" >>"$dir/log" 2>&1
}
case $name in
iptables-legacy-save)
  "$dir/real/$name" "$@"
  code=$?
  echo >>"$dir/saves"
  if [ "$(wc -l <"$dir/saves")" = SAVES ]; then meanwhile; fi
  exit $code
  ;;
iptables-legacy-restore)
  if [ "$1" = --noflush ]; then meanwhile; fi
  ;;
esac
)sh";

struct Moment {
  const char* name;
  IptablesMode mode;
  // After which reading the script runs; 0: just before the transaction.
  int saves;
  // Whether the agent finds out before it has removed anything, and keeps what they use at once.
  bool noticed;
};

class RetireRaceTest : public RetireTest, public ::testing::WithParamInterface<Moment> {
 protected:
  static Iptables Ip4() { return {.mode = GetParam().mode}; }

  // A program that does not care for the lock of iptables.
  void TheyComeMeanwhile() {
    const std::string iptables = GetParam().mode == IptablesMode::kNft
                                     ? "iptables-nft"
                                     : tree().Path("real/iptables-legacy");
    tree().Write("meanwhile", absl::StrCat("set -e\n", iptables, " -t nat -N THEIRS\n", iptables,
                                           " -t nat -A THEIRS -p tcp -j KUBE-MARK-MASQ\n"));
  }
};

TEST_P(RetireRaceTest, NothingThatTheyUseIsRemovedAndNextTimeItIsKept) {
  LeaveResidue(GetParam().mode);
  // Without a table the other mode is not read.
  Output({"iptables-legacy", "-t", "mangle", "-N", "UNRELATED"});
  SyncAndKeep(GetParam().mode);
  const Lines before = LinesOf(Ip4());
  const auto wrapper = PutBeforeLegacyPrograms(
      tree(), absl::StrReplaceAll(kWrapper, {{"SAVES", absl::StrCat(GetParam().saves)}}));
  TheyComeMeanwhile();
  const Retired first = SyncAndRetire(GetParam().mode);
  wrapper->Undo();
  ASSERT_TRUE(std::filesystem::exists(tree().Path("done"))) << "they never came";
  EXPECT_EQ(FileText(tree().Path("log")), "");

  Lines expected = before;
  expected.insert({"nat: :THEIRS -", kTheirJump});
  Kept kept = {{"ip nat KUBE-MARK-MASQ", {"foreignJump"}},
               {"ip nat KUBE-POSTROUTING", {"markedPackets"}}};
  // Where the kernel refuses one family, the other has been committed.
  if (GetParam().noticed) kept["ip6 nat KUBE-POSTROUTING"] = {"markedPackets"};
  if (GetParam().noticed) {
    EXPECT_EQ(first.result.exit_code, kExitOk) << first.result;
    EXPECT_EQ(first.kept, kept);
    EXPECT_EQ(Without(expected, LinesOf(Ip4())), DropResidue());
  } else {
    EXPECT_EQ(first.result.exit_code, kExitFailed);
    EXPECT_THAT(first.result.err, HasSubstr("iptables-legacy-restore ended with exit code 1"));
    EXPECT_THAT(Without(expected, LinesOf(Ip4())), IsEmpty()) << first.result;
  }

  const Retired second = SyncAndRetire(GetParam().mode);
  EXPECT_EQ(second.result.exit_code, kExitOk) << second.result;
  EXPECT_EQ(second.kept, kept);
  EXPECT_EQ(Without(expected, LinesOf(Ip4())), DropResidue());
  EXPECT_THAT(Without(LinesOf(Ip4()), expected), IsEmpty());
  EXPECT_EQ(SyncAndRetire(GetParam().mode).all_changes, 0);
}

const Moment kMoments[] = {
    // The other mode is read when the rules of this one have been.
    {"NftAfterTheSurvey", IptablesMode::kNft, 1, true},
    {"LegacyAfterTheFirstCheck", IptablesMode::kLegacy, 2, true},
    {"LegacyAfterTheSurvey", IptablesMode::kLegacy, 3, true},
    // Not even the lock can keep them out: the kernel is the last guard.
    {"LegacyInFrontOfTheRestore", IptablesMode::kLegacy, 0, false},
};

INSTANTIATE_TEST_SUITE_P(Moments, RetireRaceTest, ::testing::ValuesIn(kMoments),
                         [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace kipt::testing
