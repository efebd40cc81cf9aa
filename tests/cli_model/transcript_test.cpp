#include "cli/transcript.h"

#include <sys/resource.h>

#include <csignal>
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

// A limit on the size of files stands for a full disk.
TEST(Transcript, WhatCouldNotBeWrittenIsNotInTheWay) {
  const checkpoint::TempFolder folder;
  const std::string name = (folder.path() / "talk.md").string();
  const std::vector<ChatMessage> talk{{"user", std::string(100'000, 'x'), ""}};
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{.rlim_cur = 1'000, .rlim_max = before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  checkpoint::expect_error(Code::io, {"talk.md", "File too large"},
                           [&] { save_transcript(name, "tale", talk); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(save_transcript(name, "tale", talk), name);
}

}  // namespace
}  // namespace fourfold::cli
