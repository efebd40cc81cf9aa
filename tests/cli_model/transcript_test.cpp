#include "cli/transcript.h"

#include <fstream>
#include <sstream>

#include "tests/cli_model/support.h"

namespace fourfold::cli {
namespace {

const std::vector<ChatMessage> kTalk{{"system", "Be brief.", ""},
                                     {"user", "Say \"hi\".\nTwice.", ""},
                                     {"assistant", "hi hi", "Two times,\nthen."}};

TEST(Transcript, Markdown) {
  EXPECT_EQ(
      as_markdown("tale", kTalk),
      "# A conversation with tale\n\n## System\n\nBe brief.\n\n## You\n\nSay \"hi\".\nTwice.\n\n## Model\n\n"
      "> Two times,\n> then.\n\nhi hi\n");
}

TEST(Transcript, JsonHasTheMessagesOfTheApi) {
  const Json json = read_json(as_json("tale", kTalk));
  EXPECT_EQ(json.at("model").text, "tale");
  ASSERT_EQ(json.at("messages").items.size(), 3u);
  EXPECT_EQ(json.at("messages").items[0].at("role").text, "system");
  EXPECT_EQ(json.at("messages").items[2].at("content").text, "hi hi");
  EXPECT_FALSE(json.at("messages").items[1].members.contains("reasoning_content"));
  EXPECT_TRUE(json.at("messages").items[2].members.contains("reasoning_content"));
}

TEST(Transcript, AFileIsNeverReplaced) {
  const checkpoint::TempFolder folder;
  const std::string name = (folder.path() / "talk.md").string();
  EXPECT_EQ(save_transcript(name, "tale", kTalk), name);
  std::stringstream text;
  text << std::ifstream(name).rdbuf();
  EXPECT_EQ(text.str(), as_markdown("tale", kTalk));
  checkpoint::expect_error(Code::io, {"talk.md", "already"}, [&] { save_transcript(name, "tale", {}); });
  checkpoint::expect_error(Code::io, {"nowhere", "cannot be written"}, [&] {
    save_transcript((folder.path() / "nowhere" / "x.md").string(), "tale", {});
  });
}

}  // namespace
}  // namespace fourfold::cli
