// SPDX-License-Identifier: Apache-2.0
//
// Usage: record_seeds SAVED_RULES RULE_MESSAGES.hex SEEDS_DIRECTORY
//
// Writes those seeds that are what a kernel says, in a network namespace of its own (root): answers
// to each question (kernel_questions.h) on a namespace that is empty, on one with SAVED_RULES (of
// iptables-save) and a native table; that table's messages; and the blobs of the xtables matches
// and targets in RULE_MESSAGES.hex.
#include <linux/netlink.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "agent/detect/routing.h"
#include "agent/policy/rule_forms.h"
#include "netlink/attributes.h"
#include "netlink/backend.h"
#include "netlink/expression.h"
#include "tests/fuzz/kernel_questions.h"
#include "tests/fuzz/scripted_kernel.h"
#include "tests/fuzz/wire_messages.h"
#include "tests/fuzz/xt_names.h"
#include "tests/support/netns.h"
#include "tests/support/run_program.h"

namespace kipt::testing {
namespace {

using netlink::Backend;
using netlink::Family;

// NFT_MSG_* in nlmsg_type, linux/netfilter/nf_tables.h.
constexpr uint16_t kNewTable = 0;
constexpr uint16_t kNewChain = 3;
constexpr uint16_t kNewRule = 6;
constexpr uint16_t kRuleExpressions = 4;

void Must(bool done, const char* what) {
  if (done) return;
  std::fprintf(stderr, "record_seeds: %s\n", what);
  std::exit(1);
}

std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  Must(file.is_open(), path.c_str());
  return {std::istreambuf_iterator<char>(file), {}};
}

class SeedFile {
 public:
  explicit SeedFile(const std::string& path) : file_(path) { Must(file_.is_open(), path.c_str()); }

  // `selectors` as TakeSelector takes them. Each input once.
  void Add(const std::vector<size_t>& selectors, FuzzBytes bytes) {
    std::string line;
    for (const size_t selector : selectors) {
      const auto byte = static_cast<uint8_t>('0' + selector);
      line += HexOfBytes({&byte, 1});
    }
    line += HexOfBytes(bytes);
    if (written_.insert(line).second) file_ << line << "\n";
  }

 private:
  std::ofstream file_;
  std::set<std::string> written_;
};

void Ask(Question question, Backend& backend) {
  switch (question) {
    case Question::kRead:
      (void)backend.Read(QuestionedChains());
      return;
    case Question::kSurvey:
      (void)backend.TakeSurvey(nullptr);
      return;
    case Question::kNativeTable:
      (void)backend.Read({}, &agent::NativeMartians());
      return;
    case Question::kApply:
      (void)backend.Apply(QuestionedTransaction());
      return;
    case Question::kEvents:
    case Question::kPoll: {
      const auto monitor = backend.Watch(question == Question::kEvents ? netlink::WatchMode::kEvents
                                                                       : netlink::WatchMode::kPoll);
      Must(monitor.ok(), "no monitor");
      RunProgram({"nft", "add", "table", "netdev", "touched"});
      RunProgram({"nft", "delete", "table", "netdev", "touched"});
      (void)(*monitor)->Drain();
      return;
    }
    case Question::kChainList:
      (void)netlink::ListNftChains(Family::kIPv4);
      return;
    case Question::kRoutingRules:
      (void)agent::ReadFwmarkRules();
      return;
  }
}

std::vector<Frame> Record(Question question) {
  const AnswerRecorder recorder;
  const auto backend = netlink::NewNftBackend();
  Must(backend.ok(), "no nf_tables");
  Ask(question, **backend);
  return recorder.script();
}

void RecordAnswers(SeedFile& answers) {
  for (size_t question = 0; question < kQuestions; ++question) {
    answers.Add({question}, ToInput(Record(static_cast<Question>(question))));
  }
}

// The messages of the native table as frames of what they are.
void RecordNativeTable(SeedFile& tables) {
  std::vector<Frame> frames;
  for (const Frame& datagram : Record(Question::kNativeTable)) {
    nlmsghdr header = {};
    for (size_t at = 0; at + sizeof header <= datagram.bytes.size();
         at += NLMSG_ALIGN(header.nlmsg_len)) {
      std::memcpy(&header, datagram.bytes.data() + at, sizeof header);
      const uint16_t type = header.nlmsg_type & 0xff;
      const auto begin = datagram.bytes.begin() + static_cast<ptrdiff_t>(at);
      Frame frame{.kind = 0, .bytes = {begin, begin + header.nlmsg_len}};
      if (header.nlmsg_type < NLMSG_MIN_TYPE) continue;
      if (type == kNewTable) frames.push_back(frame);
      if (type == kNewChain) frame.kind = 1;
      if (type == kNewRule) frame.kind = 2;
      if (frame.kind != 0) frames.push_back(frame);
    }
  }
  Must(!frames.empty(), "no native table was read");
  tables.Add({0}, ToInput(frames));
}

std::optional<size_t> NumberOf(absl::Span<const absl::string_view> names, absl::string_view name) {
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return i;
  }
  return std::nullopt;
}

void CollectBlobs(FuzzBytes message, SeedFile& blobs) {
  const auto list = netlink::Attributes::OfMessage(message).Bytes(kRuleExpressions);
  if (!list) return;
  const size_t family = message[sizeof(nlmsghdr)] == 10 ? 1 : 0;  // NFPROTO_IPV6
  for (const netlink::Expression& expression : netlink::ParseExpressions(*list)) {
    const auto xt = netlink::ParseXt(expression);
    if (!xt || xt->revision >= kXtRevisions) continue;
    const auto name =
        xt->is_target ? NumberOf(kXtTargets, xt->name) : NumberOf(kXtMatches, xt->name);
    if (name) blobs.Add({xt->is_target ? 1U : 0U, family, *name, xt->revision}, xt->info);
  }
}

void MakeRules(const std::string& saved) {
  const auto run = [](std::vector<std::string> argv, std::string input = "") {
    const ProgramResult result = RunProgram(std::move(argv), std::move(input));
    Must(result.exit_code == 0, result.err.c_str());
  };
  run({"iptables-nft-restore"}, saved);
  run({"ip", "rule", "add", "fwmark", "0x4000/0x4000", "from", "10.0.0.0/8", "iif", "lo", "lookup",
       "100"});
  run({"ip", "rule", "add", "not", "to", "192.0.2.1", "fwmark", "7", "ipproto", "tcp", "dport",
       "80-90", "prohibit"});
  run({"ip", "-6", "rule", "add", "fwmark", "1", "uidrange", "0-100", "suppress_prefixlength",
       "0"});
  const auto backend = netlink::NewNftBackend();
  Must(backend.ok(), "no nf_tables");
  const auto snapshot = (*backend)->Read({});
  Must(snapshot.ok(), "no generation");
  const netlink::Transaction put = {
      .generation = snapshot->generation,
      .operations = {netlink::PutNativeTable{agent::NativeMartians()}}};
  Must((*backend)->Apply(put).ok(), "no native table");
}

void RecordAll(const std::string& saved, const std::string& messages, const std::string& seeds) {
  SeedFile answers(seeds + "/kernel_answers/recorded.hex");
  SeedFile tables(seeds + "/native_table/recorded.hex");
  SeedFile blobs(seeds + "/xt_blobs/captured.hex");
  Must(Netns::MoveToNew().ok(), "no network namespace of its own");
  RecordAnswers(answers);
  MakeRules(ReadText(saved));
  RecordAnswers(answers);
  RecordNativeTable(tables);
  std::ifstream lines(messages);
  for (std::string line; std::getline(lines, line);) {
    const auto bytes = BytesOfHex(line);
    Must(bytes.has_value(), "a line of the rule messages is no number");
    CollectBlobs(*bytes, blobs);
  }
}

}  // namespace
}  // namespace kipt::testing

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "Usage: record_seeds SAVED_RULES RULE_MESSAGES.hex SEEDS_DIRECTORY\n");
    return 64;
  }
  kipt::testing::RecordAll(argv[1], argv[2], argv[3]);
  return 0;
}
