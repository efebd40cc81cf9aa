#include "nodes/launcher.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

namespace fourfold::nodes {
namespace {

using namespace std::chrono_literals;

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Folder {
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
  std::filesystem::path path =
      std::filesystem::path(testing::TempDir()) / ("fourfold_launcher_" + std::to_string(::getpid()));
};

TEST(Launcher, TheCommandOnThisMachine) {
  EXPECT_EQ(shell_line(launch_command({.host = kHere,
                                       .rank = 2,
                                       .program = "/opt/four fold",
                                       .leader_host = "",
                                       .port = 4450,
                                       .more = {"--threads", "3"}})),
            "'/opt/four fold' rank --join 127.0.0.1:4450 --token-file - --rank 2 --threads 3");
}

TEST(Launcher, TheCommandBySsh) {
  const auto command = [](const std::string& leader) {
    return launch_command({.host = "spark-2",
                           .rank = 1,
                           .program = "fourfold",
                           .leader_host = leader,
                           .port = 4450,
                           .more = {}});
  };
  EXPECT_EQ(command(""),
            (std::vector<std::string>{
                "ssh", "-o", "BatchMode=yes", "spark-2",
                "exec fourfold rank --join \"${SSH_CONNECTION%% *}:4450\" --token-file - --rank 1"}));
  EXPECT_EQ(command("10.0.0.1").back(), "exec fourfold rank --join 10.0.0.1:4450 --token-file - --rank 1");
  EXPECT_EQ(command("$(reboot)").back(),
            "exec fourfold rank --join '$(reboot):4450' --token-file - --rank 1");
}

TEST(Launcher, QuotesForAShell) { EXPECT_EQ(shell_line({"a", "b c", "it's", ""}), "a 'b c' 'it'\\''s' ''"); }

// What is started gets the token's line, and is started again when it ends.
TEST(Launcher, StartsAgainWhatEnds) {
  const Folder folder;
  const std::string file = folder.path / "said";
  std::mutex mutex;
  std::string log;
  const auto said = [&] {
    const std::lock_guard lock(mutex);
    return log;
  };
  {
    const Launcher launcher(
        {{.rank = 1, .command = {"sh", "-c", "cat >> '" + file + "'; exit 7"}, .input = "secret"}},
        [&](const std::string& line) {
          const std::lock_guard lock(mutex);
          log += line + "\n";
        });
    for (int i = 0; i < 1000 && text_of(file) != "secret\nsecret\n"; ++i) std::this_thread::sleep_for(10ms);
  }
  EXPECT_EQ(text_of(file), "secret\nsecret\n");
  EXPECT_NE(said().find("rank 1 ended with 7; it is started again in 1 s"), std::string::npos) << said();
}

TEST(Launcher, EndsWhatDoesNotEndAndSaysWhatCannotBegin) {
  std::mutex mutex;
  std::string log;
  const auto begin = std::chrono::steady_clock::now();
  {
    const Launcher launcher({{.rank = 1, .command = {"sleep", "1000"}, .input = ""},
                             {.rank = 3, .command = {"sh", "-c", "kill -STOP $$"}, .input = ""},
                             {.rank = 2, .command = {"/no/such/program"}, .input = ""}},
                            [&](const std::string& line) {
                              const std::lock_guard lock(mutex);
                              log += line + "\n";
                            });
    std::this_thread::sleep_for(200ms);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s);
  EXPECT_NE(log.find("/no/such/program cannot be started: No such file"), std::string::npos) << log;
}

}  // namespace
}  // namespace fourfold::nodes
