// SPDX-License-Identifier: Apache-2.0
#include "netlink/batch.h"

#include <linux/netfilter/nf_tables.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "netlink/attributes.h"
#include "netlink/kernel_error.h"
#include "netlink/nft_requests.h"
#include "tests/support/matchers.h"
#include "tests/support/status_matchers.h"

namespace kipt::netlink {
namespace {

using ::testing::Gt;
using ::testing::Lt;

const ChainId kUser{Family::kIPv4, Table::kFilter, "USER"};
const ChainId kInput6{Family::kIPv6, Table::kFilter, "INPUT"};

struct Header {
  uint32_t length;
  uint16_t type;
  uint16_t flags;
  uint32_t sequence;
  uint32_t port;
};

std::vector<Header> Headers(const Batch& batch, std::vector<size_t>* offsets = nullptr) {
  std::vector<Header> headers;
  for (size_t offset = 0; offset < batch.messages().bytes().size();) {
    Header header = {};
    std::memcpy(&header, batch.messages().bytes().data() + offset, sizeof(header));
    headers.push_back(header);
    if (offsets != nullptr) offsets->push_back(offset);
    offset += header.length;
  }
  return headers;
}

// "TYPE/FLAGS" of each message, NLM_F_REQUEST left out.
std::vector<std::string> Shape(const Batch& batch) {
  std::vector<std::string> shape;
  for (const Header& header : Headers(batch)) {
    char text[32];
    snprintf(text, sizeof(text), "%x/%x", header.type, header.flags & ~1U);
    shape.emplace_back(text);
  }
  return shape;
}

TEST(BatchTest, HasTheMessagesTypesAndFlagsThatTheKernelWants) {
  const Transaction transaction{
      .generation = 77,
      .operations = {CreateChain{kUser}, CreateChain{kInput6},
                     CreateChain{ChainId{Family::kIPv4, Table::kFilter, "SECOND"}},
                     AddRule{.chain = kUser, .rule = {}, .before = {}},
                     AddRule{.chain = kUser, .rule = {}, .before = 5, .number = 1},
                     DeleteRule{.chain = kUser, .handle = 6, .number = 1, .rule = {}},
                     DeleteChain{kUser}}};
  const absl::StatusOr<Batch> batch = Batch::Build(transaction, 100);
  ASSERT_THAT(batch, IsOk());
  EXPECT_THAT(Shape(*batch),
              ElementsAre("10/0",                // begin
                          "a00/400", "a03/400",  // table and chain
                          "a00/400", "a03/400",  // of the other family
                          "a03/400",             // its table is there
                          "a06/c00",             // append
                          "a06/400",             // insert
                          "a08/0",               // delete a rule
                          "a05/100",             // an empty chain only
                          "11/0"));              // end
  uint32_t sequence = 100;
  for (const Header& header : Headers(*batch)) EXPECT_EQ(header.sequence, sequence++);
  EXPECT_EQ(batch->messages().count(), 11U);
}

const NativeTable kGuard = {
    .family = Family::kIPv4,
    .name = "guard",
    .chains = {NativeChain{.name = "input", .hook = 1, .rules = {NativeDrop{.state_any = 1}}}}};

TEST(BatchTest, PutsANativeTableFirstAndDeletesOneLast) {
  const Transaction transaction{
      .operations = {PutNativeTable{kGuard}, CreateChain{kUser},
                     DeleteNativeTable{.family = Family::kIPv6, .name = "old"}}};
  const absl::StatusOr<Batch> batch = Batch::Build(transaction, 100);
  ASSERT_THAT(batch, IsOk());
  EXPECT_THAT(Shape(*batch), ElementsAre("10/0",                // begin
                                         "a00/400", "a02/0",    // whatever it was, gone
                                         "a00/400", "a03/400",  // table and chain
                                         "a06/c00",             // its rule
                                         "a00/400", "a03/400",  // the operation
                                         "a02/0",               // the other table
                                         "11/0"));              // end
  uint32_t sequence = 100;
  for (const Header& header : Headers(*batch)) EXPECT_EQ(header.sequence, sequence++);
}

TEST(BatchTest, NamesTheNativeTableThatWasRefused) {
  const Transaction transaction{
      .operations = {PutNativeTable{kGuard}, DeleteNativeTable{.name = "old"}}};
  const absl::StatusOr<Batch> batch = Batch::Build(transaction, 100);
  ASSERT_THAT(batch, IsOk());
  EXPECT_THAT(batch->Explain({{{.sequence = 104, .error_number = EOPNOTSUPP}}}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("putting in place the table ip guard, chain input")));
  EXPECT_THAT(batch->Explain({{{.sequence = 106, .error_number = ENOENT}}}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("deleting the table ip old")));
  std::vector<size_t> offsets;
  const std::vector<Header> headers = Headers(*batch, &offsets);
  const WireBytes rule = batch->messages().bytes().subspan(offsets[5], headers[5].length);
  const auto elements = Attributes::Parse(rule.subspan(20))->Nest(4);
  const auto first = static_cast<uint32_t>(elements.all()[0].payload.data() - rule.data() - 4);
  EXPECT_THAT(
      batch->Explain({{{.sequence = 105, .error_number = ENOENT, .attribute_offset = first}}}),
      StatusIs(absl::StatusCode::kNotFound,
               AllOf(HasSubstr("the rule ct state invalid counter drop"),
                     HasSubstr("module nft_ct is missing"))));
}

TEST(BatchTest, CarriesTheGeneration) {
  const Transaction transaction{.generation = 0x01020304, .operations = {DeleteChain{kUser}}};
  const absl::StatusOr<Batch> batch = Batch::Build(transaction, 1);
  ASSERT_THAT(batch, IsOk());
  const auto begin =
      Attributes::Parse(batch->messages().bytes().subspan(20, Headers(*batch)[0].length - 20));
  ASSERT_TRUE(begin.has_value());
  EXPECT_EQ(begin->U32(1), 0x01020304U);  // NFNL_BATCH_GENID
  const uint32_t last = batch->messages().count() - 1;
  for (const uint32_t mark : {0U, last}) {
    EXPECT_EQ(FamilyOf(batch->messages().Message(mark)), NFPROTO_UNSPEC) << mark;
  }
}

TEST(BatchTest, GivesABaseChainItsHookAndNoPolicy) {
  const Transaction transaction{.operations = {CreateChain{kInput6}}};
  const absl::StatusOr<Batch> batch = Batch::Build(transaction, 1);
  ASSERT_THAT(batch, IsOk());
  std::vector<size_t> offsets;
  const std::vector<Header> headers = Headers(*batch, &offsets);
  const auto chain =
      Attributes::Parse(batch->messages().bytes().subspan(offsets[2] + 20, headers[2].length - 20));
  ASSERT_TRUE(chain.has_value());
  EXPECT_EQ(chain->Text(1), "filter");
  EXPECT_EQ(chain->Text(3), "INPUT");
  EXPECT_EQ(chain->Nest(4).U32(1), 1U);
  EXPECT_EQ(chain->Nest(4).U32(2), 0U);
  EXPECT_EQ(chain->Text(7), "filter");
  EXPECT_FALSE(chain->Bytes(5).has_value()) << "a policy would undo the administrator's";
}

TEST(BatchTest, RefusesOperationsThatNoKernelMayGet) {
  const auto build = [](const Operation& operation) {
    return Batch::Build(Transaction{.operations = {operation}}, 1);
  };
  EXPECT_THAT(build(DeleteChain{kInput6}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("ip6 filter INPUT")));
  EXPECT_THAT(build(CreateChain{ChainId{Family::kIPv4, Table::kNat, ""}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("creating chain")));
  for (const Operation& operation : {Operation(PutNativeTable{NativeTable{.name = ""}}),
                                     Operation(DeleteNativeTable{.name = ""})}) {
    EXPECT_THAT(build(operation), StatusIs(absl::StatusCode::kInvalidArgument));
  }
  EXPECT_THAT(
      build(AddRule{.chain = kUser, .rule = Rule{.comment = std::string(256, 'x')}, .before = {}}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("appending to chain ip filter USER")));
}

// Without its handle, the deletion of a rule is the deletion of every rule of the chain.
TEST(BatchTest, NamesInEachMessageWhatItIsAbout) {
  const ChainId chain{Family::kIPv6, Table::kNat, "USER"};
  const Transaction transaction{
      .operations = {CreateChain{chain}, AddRule{.chain = chain, .rule = {}, .before = {}},
                     AddRule{.chain = chain, .rule = {}, .before = 5},
                     DeleteRule{.chain = chain, .handle = 6, .rule = {}}, DeleteChain{chain}}};
  const absl::StatusOr<Batch> batch = Batch::Build(transaction, 1);
  ASSERT_THAT(batch, IsOk());
  std::vector<size_t> offsets;
  const std::vector<Header> headers = Headers(*batch, &offsets);
  ASSERT_EQ(headers.size(), 8U);
  const auto message = [&](size_t index) {
    return Attributes::OfMessage(
        batch->messages().bytes().subspan(offsets[index], headers[index].length));
  };
  EXPECT_EQ(message(1).Text(NFTA_TABLE_NAME), "nat");
  EXPECT_EQ(message(2).Text(NFTA_CHAIN_TABLE), "nat");
  EXPECT_EQ(message(2).Text(NFTA_CHAIN_NAME), "USER");
  for (const size_t rule : {3U, 4U, 5U}) {
    SCOPED_TRACE(rule);
    EXPECT_EQ(message(rule).Text(NFTA_RULE_TABLE), "nat");
    EXPECT_EQ(message(rule).Text(NFTA_RULE_CHAIN), "USER");
    EXPECT_EQ(message(rule).U64(NFTA_RULE_POSITION),
              rule == 4 ? std::optional<uint64_t>(5) : std::nullopt);
    EXPECT_EQ(message(rule).U64(NFTA_RULE_HANDLE),
              rule == 5 ? std::optional<uint64_t>(6) : std::nullopt);
  }
  EXPECT_EQ(message(6).Text(NFTA_CHAIN_TABLE), "nat");
  EXPECT_EQ(message(6).Text(NFTA_CHAIN_NAME), "USER");
  for (size_t i = 1; i + 1 < headers.size(); ++i) {
    EXPECT_EQ(batch->messages().bytes()[offsets[i] + 16], 10) << "NFPROTO_IPV6, message " << i;
  }
}

class BatchErrorTest : public ::testing::Test {
 protected:
  BatchErrorTest()
      : transaction_{.operations = {CreateChain{kUser},
                                    AddRule{.chain = kUser,
                                            .rule = Rule{.comment = "why",
                                                         .ct_state = CtStateMatch{kCtNew},
                                                         .target = Jump{"GONE"}},
                                            .before = {}},
                                    DeleteRule{.chain = kUser, .handle = 6, .rule = {}},
                                    DeleteChain{kUser}}},
        batch_(*Batch::Build(transaction_, 50)) {}

  absl::Status Explain(const std::vector<BatchError>& errors) { return batch_.Explain(errors); }

  // Of the header of expression number `index` in the message of the AddRule.
  uint32_t ExpressionOffset(size_t index) {
    std::vector<size_t> offsets;
    const std::vector<Header> headers = Headers(batch_, &offsets);
    const WireBytes message = batch_.messages().bytes().subspan(offsets[3], headers[3].length);
    const auto attributes = Attributes::Parse(message.subspan(20));
    const auto elements = attributes->Nest(4);
    return static_cast<uint32_t>(elements.all()[index].payload.data() - message.data() - 4);
  }

  Transaction transaction_;
  Batch batch_;
};

TEST_F(BatchErrorTest, IsNoneWithoutErrors) { EXPECT_THAT(Explain({}), IsOk()); }

TEST_F(BatchErrorTest, IsAbortedForAStaleGenerationWhateverElseFailed) {
  const BatchError other{.sequence = 52, .error_number = ENOENT};
  // The batch's own begin and end, and messages before and after the other that failed.
  for (const uint32_t sequence : {50U, 51U, 53U, 55U, 56U}) {
    SCOPED_TRACE(sequence);
    const BatchError stale{.sequence = sequence, .error_number = ERESTART};
    EXPECT_THAT(Explain({other, stale}), StatusIs(absl::StatusCode::kAborted));
    EXPECT_THAT(Explain({stale, other}), StatusIs(absl::StatusCode::kAborted));
  }
}

TEST_F(BatchErrorTest, NamesTheFirstOperationThatFailed) {
  EXPECT_THAT(
      Explain({{.sequence = 54, .error_number = EBUSY}, {.sequence = 53, .error_number = ENOENT}}),
      StatusIs(absl::StatusCode::kNotFound,
               AllOf(HasSubstr("appending to chain ip filter USER"),
                     HasSubstr("-m comment --comment why"), HasSubstr("-j GONE"))));
  EXPECT_THAT(
      Explain({{.sequence = 53, .error_number = ENOENT}, {.sequence = 54, .error_number = EBUSY}}),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("appending to chain")))
      << "in whichever order the kernel reports them";
  EXPECT_THAT(
      Explain({{.sequence = 53, .error_number = ENOENT}, {.sequence = 53, .error_number = EINVAL}}),
      StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(Explain({{.sequence = 51, .error_number = ENOMEM}}),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("creating table ip filter for chain USER")));
  EXPECT_THAT(
      Explain({{.sequence = 52, .error_number = EOPNOTSUPP}}),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("creating chain ip filter USER")));
  EXPECT_THAT(Explain({{.sequence = 54, .error_number = ENOENT}}),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("deleting from chain ip filter USER handle 6, the rule -j DROP")));
  EXPECT_THAT(
      Explain({{.sequence = 55, .error_number = EBUSY}}),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("deleting chain ip filter USER")));
}

TEST_F(BatchErrorTest, SaysWhatIsMissingOnlyWhereSomethingIs) {
  const struct {
    std::string name;
    BatchError error;
    std::string message;
  } rows[] = {
      {"a rule to delete",
       {.sequence = 54, .error_number = ENOENT},
       "there is no such chain, or no rule of that handle in it"},
      {"a chain to delete", {.sequence = 55, .error_number = ENOENT}, "(there is no such chain)"},
      {"a chain to make", {.sequence = 52, .error_number = ENOENT}, "(there is no such chain)"},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    EXPECT_THAT(Explain({row.error}),
                StatusIs(absl::StatusCode::kNotFound, HasSubstr(row.message)));
  }
  EXPECT_THAT(std::string(Explain({{.sequence = 55, .error_number = EBUSY}}).message()),
              Not(HasSubstr("there is no such chain")));
}

TEST_F(BatchErrorTest, NamesTheChainThatIsInUseOnlyWhereAChainIs) {
  EXPECT_EQ(ChainInUse(Explain({{.sequence = 55, .error_number = EBUSY}})), "ip filter USER");
  EXPECT_EQ(ChainInUse(Explain({{.sequence = 55, .error_number = ENOENT}})), std::nullopt);
  EXPECT_EQ(ChainInUse(Explain({{.sequence = 54, .error_number = EBUSY}})), std::nullopt);
  EXPECT_EQ(ChainInUse(Explain({{.sequence = 52, .error_number = EBUSY}})), std::nullopt);
}

TEST_F(BatchErrorTest, SaysThatPrivilegesAreMissing) {
  EXPECT_THAT(Explain({{.sequence = 50, .error_number = EPERM}}),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("CAP_NET_ADMIN")));
}

TEST_F(BatchErrorTest, NamesTheExtensionThatTheKernelPointedAt) {
  // 0: comment, 1: conntrack, 2: counter, 3: the jump.
  const absl::Status status =
      Explain({{.sequence = 53, .error_number = ENOENT, .attribute_offset = ExpressionOffset(1)}});
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound,
                               HasSubstr("no xtables match conntrack of revision 3")));
  EXPECT_EQ(MissingExtension(status), "conntrack");
}

TEST_F(BatchErrorTest, TellsAMissingJumpTargetFromAMissingExtension) {
  const absl::Status status =
      Explain({{.sequence = 53, .error_number = ENOENT, .attribute_offset = ExpressionOffset(3)}});
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound, HasSubstr("no chain GONE to jump to")));
  EXPECT_EQ(MissingExtension(status), std::nullopt);
}

TEST_F(BatchErrorTest, SurvivesAnyOffset) {
  for (uint32_t offset = 0; offset < 1500; ++offset) {
    EXPECT_THAT(Explain({{.sequence = 53, .error_number = ENOENT, .attribute_offset = offset}}),
                StatusIs(absl::StatusCode::kNotFound));
  }
}

TEST_F(BatchErrorTest, SurvivesASequenceNumberThatIsNotItsOwn) {
  for (const uint32_t sequence : {9U, 56U, 57U}) {
    EXPECT_THAT(Explain({{.sequence = sequence, .error_number = EINVAL}}),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("committing to nf_tables")))
        << sequence;
  }
}

// Nothing checks whether a message fits its place while it is built.
TEST(BatchTest, TheLongestMessagesTakeHalfOfTheirPlaces) {
  const std::string longest(255, 'x');
  const PrefixMatch address = {.prefix = *ParsePrefix(Family::kIPv6, "fd00::/12")};
  const Rule rule = {.source = address,
                     .destination = address,
                     .comment = longest,
                     .mark = MarkMatch{.value = 1, .mask = 1},
                     .ct_state = CtStateMatch{.states = 2},
                     .conn_label = ConnLabelMatch{.label = 1},
                     .target = Jump{.chain = longest}};
  const NativeDrop drop = {.source = address,
                           .destination = address,
                           .state_any = 1,
                           .state_none = 2,
                           .status_none = 4,
                           .comment = std::string(127, 'x')};
  const NativeTable table = {.family = Family::kIPv6,
                             .name = longest,
                             .chains = {NativeChain{.name = longest, .rules = {drop}}}};
  const ChainId chain{Family::kIPv6, Table::kFilter, longest};
  const auto batch = Batch::Build(
      {.operations = {AddRule{.chain = chain, .rule = rule, .before = 5}, PutNativeTable{table}}},
      1);
  ASSERT_THAT(batch, IsOk());
  size_t most = 0;
  for (const Header& header : Headers(*batch)) most = std::max(most, size_t{header.length});
  EXPECT_THAT(most, AllOf(Gt(size_t{1500}), Lt(size_t{2000})));
  static_assert(Requests::kMostBytes >= size_t{2} * 2000);
}

// ---- allocations of libnftnl, which is linked from its archive ----

// How many more succeed; negative: all.
int allocations_left = -1;

bool AllocationFails() { return allocations_left >= 0 && allocations_left-- == 0; }

// The result of `call` with each allocation failing in turn, until there is none more to fail.
size_t CallsThatFail(const std::function<absl::Status()>& call) {
  for (int allowed = 0;; ++allowed) {
    allocations_left = allowed;
    const absl::Status status = call();
    const bool failed = allocations_left < 0;
    allocations_left = -1;
    if (!failed) {
      EXPECT_THAT(status, IsOk());
      return static_cast<size_t>(allowed);
    }
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("no memory")));
  }
}

TEST(BatchTest, AnAllocationThatFailsIsAnErrorOfTheCall) {
  const PrefixMatch loopback = {.prefix = *ParsePrefix(Family::kIPv4, "127.0.0.0/8")};
  const Rule rule = {.source = loopback,
                     .comment = "a",
                     .mark = MarkMatch{.value = 1, .mask = 1},
                     .target = Jump{.chain = "OTHER"}};
  NativeTable guard = kGuard;
  guard.chains[0].rules[0].comment = "b";
  const std::vector<Operation> operations = {
      CreateChain{kInput6},
      AddRule{.chain = kUser, .rule = rule},
      DeleteRule{.chain = kUser, .handle = 6, .number = 1, .rule = {}},
      DeleteChain{kUser},
      WakeTable{.chain = kUser, .flags = 1},
      PutNativeTable{guard},
      DeleteNativeTable{.name = "old"}};
  for (const Operation& operation : operations) {
    const Transaction transaction{.operations = {operation}};
    EXPECT_GE(CallsThatFail([&] { return Batch::Build(transaction, 1).status(); }), 2U)
        << ToString(operation);
  }
}

TEST(NativeComparisonTest, AnAllocationThatFailsIsNoDifference) {
  const auto batch = Batch::Build({.operations = {PutNativeTable{kGuard}}}, 1);
  ASSERT_THAT(batch, IsOk());
  const WireBytes rule = batch->messages().Message(5);
  EXPECT_GE(CallsThatFail([&] {
              NativeComparison comparison(kGuard);
              comparison.AddRule(rule);
              return comparison.Finish().status();
            }),
            8U);
}

}  // namespace
}  // namespace kipt::netlink

extern "C" {

void* __real_malloc(size_t size);
void* __real_calloc(size_t count, size_t size);
char* __real_strdup(const char* text);

void* __wrap_malloc(size_t size) {
  return kipt::netlink::AllocationFails() ? nullptr : __real_malloc(size);
}
void* __wrap_calloc(size_t count, size_t size) {
  return kipt::netlink::AllocationFails() ? nullptr : __real_calloc(count, size);
}
char* __wrap_strdup(const char* text) {
  return kipt::netlink::AllocationFails() ? nullptr : __real_strdup(text);
}

}  // extern "C"
