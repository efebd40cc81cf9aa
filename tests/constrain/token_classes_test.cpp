#include "constrain/token_classes.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "constrain/guide.h"

namespace fourfold::constrain {
namespace {

// Moore's refinement as the books have it: every state in every round.
std::vector<std::uint32_t> plainly(const Grammar& grammar, int rounds) {
  std::vector<std::uint32_t> now(grammar.state_count(), 0);
  for (int round = 0; round <= rounds; ++round) {
    std::map<std::vector<std::uint32_t>, std::uint32_t> known;
    std::vector<std::uint32_t> next;
    for (std::uint32_t state = 0; state < grammar.state_count(); ++state) {
      std::vector<std::uint32_t> key{grammar.is_final(state), grammar.only_ends(state)};
      for (const auto& edge : grammar.edges(state))
        key.insert(key.end(), {1, edge.low, edge.high, now[edge.to]});
      for (const auto& call : grammar.calls(state)) key.insert(key.end(), {2, call.rule, now[call.to]});
      next.push_back(known.emplace(key, static_cast<std::uint32_t>(known.size())).first->second);
    }
    now = next;
  }
  return now;
}

TEST(TokenClasses, ArePartitionsByTextsOfThatLength) {
  const std::shared_ptr<const Grammar> grammars[] = {
      compile_json_object(), compile_regex("[ab]{40}|(ab|ba){3,50}c*"),
      compile_json_schema(R"({"properties": {"a": {"maxLength": 60}, "b": {"pattern": "^[a-z]{2,30}$"},
                              "c": {"items": {"$ref": "#"}}}})")};
  for (const auto& grammar : grammars)
    for (const int bytes : {0, 1, 2, 7, 30, 200}) {
      const auto classes = token_classes(*grammar, bytes), wanted = plainly(*grammar, bytes);
      std::map<std::uint32_t, std::uint32_t> there, back;
      for (std::uint32_t state = 0; state < grammar->state_count(); ++state) {
        ASSERT_EQ(there.emplace(classes[state], wanted[state]).first->second, wanted[state]) << bytes;
        ASSERT_EQ(back.emplace(wanted[state], classes[state]).first->second, classes[state]) << bytes;
      }
    }
}

// Of a long count only the last states differ for tokens.
TEST(TokenClasses, LongCountsHaveFew) {
  const auto grammar = compile_json_schema(R"({"type": "string", "maxLength": 20000})");
  const auto classes = token_classes(*grammar, 128);
  EXPECT_GT(grammar->state_count(), 20'000u);
  EXPECT_LT(std::set<std::uint32_t>(classes.begin(), classes.end()).size(), 300u);
}

}  // namespace
}  // namespace fourfold::constrain
