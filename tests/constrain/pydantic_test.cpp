// The schemas pydantic writes for the types of pydantic_models.py, as they are in pydantic_schemas.json:
// compiled, and answered. FOURFOLD_CONSTRAIN_ANSWERS names a file that gets the answers, for pydantic itself
// (check_with_pydantic.py) and for jsonschema.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "json/parse.h"
#include "tests/constrain/accepts.h"
#include "tests/constrain/random_answer.h"

namespace fourfold::constrain {
namespace {

constexpr int kRounds = 6;  // of what pydantic judges; without it one does

bj::value schemas() { return json::parse_file(FOURFOLD_PYDANTIC_SCHEMAS); }

TEST(Pydantic, AnswersAreJsonOfTheTypesThatCompile) {
  std::ofstream file;
  if (const char* path = std::getenv("FOURFOLD_CONSTRAIN_ANSWERS")) file.open(path, std::ios::app);
  const bj::value all = schemas();
  const auto& served = all.at("served").as_object();
  EXPECT_GE(served.size(), 40u);
  for (const auto& [name, schema] : served) {
    SCOPED_TRACE(std::string(name));
    const std::string text = bj::serialize(schema);
    const auto masks = std::make_shared<const Masks>(model().vocabulary, compile_json_schema(text));
    Random random(name.size());
    for (int round = 0; round < (file.is_open() ? kRounds : 1); ++round) {
      const std::string answer = random_answer(masks, random, 120, static_cast<std::uint64_t>(round) * 2);
      boost::system::error_code code;
      bj::parse(answer, code);
      EXPECT_FALSE(code) << answer;
      // JSON holds no raw control character.
      if (file) file << "[" << text << "," << answer << "," << bj::serialize(bj::value(name)) << "]\x1E";
    }
    if (HasFatalFailure() || HasNonfatalFailure()) return;
  }
}

TEST(Pydantic, SetsOfAnythingAreRefusedWithAWord) {
  const bj::value all = schemas();
  const auto& refused = all.at("refused").as_object();
  EXPECT_GE(refused.size(), 2u);
  for (const auto& [name, schema] : refused) {
    const std::string text = bj::serialize(schema.at("schema"));
    const std::string said = refusal([&] { compile_json_schema(text); });
    EXPECT_NE(said.find(std::string(schema.at("says").as_string())), std::string::npos)
        << name << ": " << said;
  }
}

}  // namespace
}  // namespace fourfold::constrain
