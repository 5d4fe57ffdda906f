// SPDX-License-Identifier: Apache-2.0
#include "netlink/batch.h"

#include <linux/netfilter/nf_tables.h>
#include <linux/netlink.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "netlink/attributes.h"
#include "netlink/kernel_error.h"
#include "netlink/nft_requests.h"
#include "tests/netlink/wire_bytes.h"
#include "tests/support/matchers.h"
#include "tests/support/rows.h"
#include "tests/support/status_matchers.h"

namespace kipt::netlink {
namespace {

using namespace ::kipt::testing;  // NOLINT(google-build-using-namespace): the wire's vocabulary
const ChainId kUser{Family::kIPv4, Table::kFilter, "USER"};
const ChainId kInput6{Family::kIPv6, Table::kFilter, "INPUT"};

std::vector<nlmsghdr> Headers(const Batch& batch) {
  std::vector<nlmsghdr> headers(batch.messages().count());
  for (size_t i = 0; i < headers.size(); ++i) {
    std::memcpy(&headers[i], batch.messages().Message(i).data(), sizeof(headers[i]));
  }
  return headers;
}

// "TYPE/FLAGS" of each message, NLM_F_REQUEST left out.
std::vector<std::string> Shape(const Batch& batch) {
  std::vector<std::string> shape;
  for (const nlmsghdr& header : Headers(batch)) {
    shape.push_back(absl::StrCat(absl::Hex(header.nlmsg_type), "/",
                                 absl::Hex(header.nlmsg_flags & ~uint32_t{NLM_F_REQUEST})));
  }
  return shape;
}

// Where the header of expression number `expression` is in the rule that is a message of `batch`.
uint32_t ExpressionOffset(const Batch& batch, size_t message, size_t expression) {
  const WireBytes rule = batch.messages().Message(message);
  const std::vector<Attribute> elements = Attributes::OfMessage(rule).Nest(4).all();
  return static_cast<uint32_t>(elements.at(expression).payload.data() - rule.data() - 4);
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
  for (const nlmsghdr& header : Headers(*batch)) EXPECT_EQ(header.nlmsg_seq, sequence++);
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
                                         "a00/400", "a02/0",    // any old table is deleted
                                         "a00/400", "a03/400",  // table and chain
                                         "a06/c00",             // its rule
                                         "a00/400", "a03/400",  // the operation
                                         "a02/0",               // the other table
                                         "11/0"));              // end
  uint32_t sequence = 100;
  for (const nlmsghdr& header : Headers(*batch)) EXPECT_EQ(header.nlmsg_seq, sequence++);
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
  const uint32_t first = ExpressionOffset(*batch, 5, 0);
  EXPECT_THAT(
      batch->Explain({{{.sequence = 105, .error_number = ENOENT, .attribute_offset = first}}}),
      StatusIs(absl::StatusCode::kNotFound,
               AllOf(HasSubstr("the rule ct state invalid counter drop"),
                     HasSubstr("module nft_ct is missing"))));
}

TEST(BatchTest, GivesABaseChainItsHookAndNoPolicy) {
  const Transaction transaction{.operations = {CreateChain{kInput6}}};
  const absl::StatusOr<Batch> batch = Batch::Build(transaction, 1);
  ASSERT_THAT(batch, IsOk());
  const Attributes chain = Attributes::OfMessage(batch->messages().Message(2));
  EXPECT_EQ(chain.Text(1), "filter");
  EXPECT_EQ(chain.Text(3), "INPUT");
  EXPECT_EQ(chain.Nest(4).U32(1), 1U);
  EXPECT_EQ(chain.Nest(4).U32(2), 0U);
  EXPECT_EQ(chain.Text(7), "filter");
  EXPECT_FALSE(chain.Bytes(5).has_value()) << "a policy would undo the administrator's";
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

  Transaction transaction_;
  Batch batch_;
};

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

TEST_F(BatchErrorTest, NamesTheFirstOperationThatFailedAndWhatIsMissing) {
  using Code = absl::StatusCode;
  struct Row {
    const char* name;
    std::vector<BatchError> errors;
    Code code;
    std::vector<std::string> words;
  };
  const auto at = [](uint32_t sequence, int error, uint32_t offset = 0) {
    return BatchError{.sequence = sequence, .error_number = error, .attribute_offset = offset};
  };
  const Row rows[] = {
      {"nothing", {}, Code::kOk, {}},
      {"no privileges", List(at(50, EPERM)), Code::kPermissionDenied, List("CAP_NET_ADMIN")},
      {"the chain's table", List(at(51, ENOMEM)), Code::kResourceExhausted,
       List("creating table ip filter for chain USER")},
      {"a chain", List(at(52, EOPNOTSUPP)), Code::kFailedPrecondition,
       List("creating chain ip filter USER")},
      {"a chain to make", List(at(52, ENOENT)), Code::kNotFound, List("(there is no such chain)")},
      {"the first of two", List(at(54, EBUSY), at(53, ENOENT)), Code::kNotFound,
       List("appending to chain ip filter USER", "-m comment --comment why", "-j GONE")},
      {"the first of two, reported first", List(at(53, ENOENT), at(54, EBUSY)), Code::kNotFound,
       List("appending to chain")},
      {"the first of its errors", List(at(53, ENOENT), at(53, EINVAL)), Code::kNotFound, {}},
      // Of its expressions: 0 comment, 1 conntrack, 2 counter, 3 the jump.
      {"an extension", List(at(53, ENOENT, ExpressionOffset(batch_, 3, 1))), Code::kNotFound,
       List("no xtables match conntrack of revision 3")},
      {"a jump's chain", List(at(53, ENOENT, ExpressionOffset(batch_, 3, 3))), Code::kNotFound,
       List("no chain GONE to jump to")},
      {"a rule to delete", List(at(54, ENOENT)), Code::kNotFound,
       List("deleting from chain ip filter USER handle 6, the rule -j DROP",
            "there is no such chain, or no rule of that handle in it")},
      {"a chain to delete", List(at(55, ENOENT)), Code::kNotFound,
       List("(there is no such chain)")},
      {"a chain in use", List(at(55, EBUSY)), Code::kFailedPrecondition,
       List("deleting chain ip filter USER")},
      {"a number before its own", List(at(9, EINVAL)), Code::kInvalidArgument,
       List("committing to nf_tables")},
      {"its end", List(at(56, EINVAL)), Code::kInvalidArgument, List("committing to nf_tables")},
      {"a number after its own", List(at(57, EINVAL)), Code::kInvalidArgument,
       List("committing to nf_tables")},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    const absl::Status status = Explain(row.errors);
    EXPECT_EQ(status.code(), row.code) << status;
    for (const std::string& word : row.words) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(word));
    }
    const std::string name = row.name;
    EXPECT_EQ(ChainInUse(status),
              name == "a chain in use" ? std::make_optional("ip filter USER") : std::nullopt);
    EXPECT_EQ(MissingExtension(status),
              name == "an extension" ? std::make_optional("conntrack") : std::nullopt);
  }
  EXPECT_THAT(std::string(Explain({at(55, EBUSY)}).message()),
              Not(HasSubstr("there is no such chain")));
  EXPECT_EQ(ChainInUse(Explain({at(54, EBUSY)})), std::nullopt) << "a rule";
  EXPECT_EQ(ChainInUse(Explain({at(52, EBUSY)})), std::nullopt) << "a chain to make";
}

TEST_F(BatchErrorTest, SurvivesAnyOffset) {
  for (uint32_t offset = 0; offset < 1500; ++offset) {
    EXPECT_THAT(Explain({{.sequence = 53, .error_number = ENOENT, .attribute_offset = offset}}),
                StatusIs(absl::StatusCode::kNotFound));
  }
}

// A message with a rule of one expression, and where the kernel would point at its parts.
Bytes MessageOf(const std::string& expression) {
  const Bytes any = Text("any");
  return Join({Zeros(20), Attr(NFTA_RULE_TABLE, any), Attr(NFTA_RULE_CHAIN, any),
               Attr(NFTA_RULE_POSITION, any),
               Attr(NFTA_RULE_EXPRESSIONS, ExpressionBytes(expression, {}))});
}
constexpr uint32_t kTableAt = 20;
constexpr uint32_t kChainAt = 28;
constexpr uint32_t kPositionAt = 36;
constexpr uint32_t kExpressionAt = 48;

const AddRule kRule{.chain = kUser, .rule = Rule{.comment = "a rule", .target = Drop{}}};

std::string Explained(const AddRule& add, const std::string& expression, int error_number = ENOENT,
                      uint32_t offset = kExpressionAt) {
  const BatchError error = {.error_number = error_number, .attribute_offset = offset};
  const absl::Status status = ExplainRule(add, error, MessageOf(expression));
  EXPECT_EQ(MissingExtension(status), std::nullopt) << "iptables' extensions may all be there";
  return std::string(status.message());
}
std::string ExplainedNative(const std::string& expression, int error_number = ENOENT,
                            uint32_t offset = kExpressionAt, const std::string& action = "adding") {
  const BatchError error = {.error_number = error_number, .attribute_offset = offset};
  return std::string(ExplainNative(action, error, MessageOf(expression)).message());
}

// Linux 5.10 has nft_counter as a module: the rule is refused without that one. nf_tables
// itself has others; match and target are nft_compat's.
TEST(BatchErrorsTest, NamesTheModuleOfAnExpressionOnlyWhereItIsMissing) {
  EXPECT_THAT(Explained(kRule, "counter"), AllOf(HasSubstr("module nft_counter"),
                                                 HasSubstr("appending to chain ip filter USER")));
  EXPECT_THAT(ExplainedNative("counter"), HasSubstr("module nft_counter"));
  EXPECT_THAT(ExplainedNative("ct"), HasSubstr("module nft_ct"));
  for (const char* name :
       {"bitwise", "cmp", "immediate", "match", "meta", "payload", "range", "target"}) {
    EXPECT_THAT(ExplainedNative(name), Not(HasSubstr("module nft_"))) << name;
  }
  EXPECT_THAT(Explained(kRule, "counter", ENOENT, 0), Not(HasSubstr("nft_counter")));
  EXPECT_THAT(ExplainedNative("counter", ENOENT, 0), Not(HasSubstr("nft_counter")));
  EXPECT_THAT(ExplainedNative("counter", EOPNOTSUPP), Not(HasSubstr("nft_counter")));
  EXPECT_THAT(ExplainedNative("counter", ENOENT, kExpressionAt, ""),
              HasSubstr("committing to nf_tables"));
}

TEST(BatchErrorsTest, NamesWhatIsMissingWhereTheKernelPointed) {
  const auto explain = [](uint32_t offset, int error_number = ENOENT) {
    return Explained(kRule, "counter", error_number, offset);
  };
  const std::string no_chain = "(there is no such chain)";
  const std::string no_rule = "(there is no rule of that handle in the chain)";
  for (const auto& [begin, advice] : {std::pair(kTableAt, no_chain), std::pair(kChainAt, no_chain),
                                      std::pair(kPositionAt, no_rule)}) {
    EXPECT_THAT(explain(begin), HasSubstr(advice));
    EXPECT_THAT(explain(begin + 7), HasSubstr(advice)) << "its last byte";
    EXPECT_THAT(explain(begin, EINVAL), Not(HasSubstr("there is no")));
  }
  EXPECT_THAT(explain(kPositionAt + 8), Not(HasSubstr("there is no")));
  EXPECT_THAT(explain(0), Not(HasSubstr("there is no"))) << "the kernel did not point";
}

TEST(BatchErrorsTest, NamesThePlaceOfTheRule) {
  AddRule insert = kRule;
  insert.before = 5;
  EXPECT_THAT(ActionText(insert),
              HasSubstr("inserting into chain ip filter USER before handle 5 the rule"));
  EXPECT_THAT(ActionText(kRule), HasSubstr("appending to chain ip filter USER the rule"));
}

TEST(BatchErrorsTest, NamesWhereMasqueradingIsAllowedAndBlamesAJumpOnlyWhereThereIsOne) {
  AddRule masquerade = kRule;
  masquerade.rule.target = Masquerade{};
  const std::string advice = "MASQUERADE is for nat POSTROUTING only";
  EXPECT_THAT(Explained(masquerade, "masq", EINVAL, 0), HasSubstr(advice));
  EXPECT_THAT(Explained(masquerade, "masq", ENOMEM, 0), Not(HasSubstr(advice)));
  EXPECT_THAT(Explained(kRule, "masq", EINVAL, 0), Not(HasSubstr(advice)));
  AddRule jump = kRule;
  jump.rule.target = Jump{"GONE"};
  EXPECT_THAT(Explained(kRule, "immediate"), Not(HasSubstr("to jump to")));
  EXPECT_THAT(Explained(jump, "bitwise"), Not(HasSubstr("to jump to")));
}

TEST(KernelErrorTest, MapsEachErrnoToTheCodeOfItsHeaderWithItsAdvice) {
  struct Row {
    int error;
    absl::StatusCode code;
    std::string advice;
  };
  const std::vector<Row> rows = {
      {EPERM, absl::StatusCode::kPermissionDenied, "CAP_NET_ADMIN"},
      {EACCES, absl::StatusCode::kPermissionDenied, "CAP_NET_ADMIN"},
      {ENOENT, absl::StatusCode::kNotFound, "does not exist"},
      {EINVAL, absl::StatusCode::kInvalidArgument, "does not allow this here"},
      {ERANGE, absl::StatusCode::kInvalidArgument, "a number is out of range"},
      {EOVERFLOW, absl::StatusCode::kInvalidArgument, "a number is out of range"},
      {ENAMETOOLONG, absl::StatusCode::kInvalidArgument, "a name is too long"},
      {EMSGSIZE, absl::StatusCode::kInvalidArgument, "too large for the socket"},
      {ELOOP, absl::StatusCode::kFailedPrecondition, "in a circle"},
      {EMLINK, absl::StatusCode::kFailedPrecondition, "in a circle, or too deep"},
      {EBUSY, absl::StatusCode::kFailedPrecondition, "it is in use"},
      {EEXIST, absl::StatusCode::kFailedPrecondition, "something else of that name"},
      {EOPNOTSUPP, absl::StatusCode::kFailedPrecondition, "the kernel cannot do this"},
      {ERESTART, absl::StatusCode::kAborted, "has changed since it was read"},
      {EINTR, absl::StatusCode::kAborted, "interrupted"},
      {ENOMEM, absl::StatusCode::kResourceExhausted, "out of memory"},
      {ENOBUFS, absl::StatusCode::kResourceExhausted, "receive buffer is full"},
      {ENFILE, absl::StatusCode::kResourceExhausted, "too many are open"},
      {EMFILE, absl::StatusCode::kResourceExhausted, "too many are open"},
      {ENOSPC, absl::StatusCode::kResourceExhausted, ""},
      {EPROTONOSUPPORT, absl::StatusCode::kUnavailable, "no netfilter netlink"},
      {EAFNOSUPPORT, absl::StatusCode::kUnavailable, "no netlink for this family"},
      {ETIMEDOUT, absl::StatusCode::kDeadlineExceeded, "did not answer"},
      {EXDEV, absl::StatusCode::kUnknown, ""},
  };
  for (const Row& row : rows) {
    EXPECT_THAT(KernelError(row.error, "x"), StatusIs(row.code, HasSubstr(row.advice)));
  }
}

TEST(KernelErrorTest, NamesTheActionTheKernelsAnswerAndTheRemedy) {
  EXPECT_THAT(std::string(KernelError(EPERM, "creating chain ip filter X").message()),
              AllOf(StartsWith("creating chain ip filter X: Operation not permitted"),
                    HasSubstr("CAP_NET_ADMIN in the user namespace that owns")));
  EXPECT_EQ(KernelError(ENOENT, "doing", "do that instead").message(),
            "doing: No such file or directory (do that instead)");
  EXPECT_EQ(KernelError(EXDEV, "doing").message(), "doing: Invalid cross-device link");
  EXPECT_EQ(KernelError(ENOSPC, "doing").message(), "doing: No space left on device");
  EXPECT_EQ(KernelError(ERESTART, "doing", "again").message(), "doing: ERESTART (again)");
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
  for (const nlmsghdr& header : Headers(*batch)) most = std::max(most, size_t{header.nlmsg_len});
  EXPECT_THAT(most, AllOf(Gt(size_t{1500}), Lt(size_t{2000})));
  static_assert(Requests::kMostBytes >= size_t{2} * 2000);
}

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
