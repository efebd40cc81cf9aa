#include "checkpoint/hub_cache.h"

#include "tests/checkpoint/support.h"

namespace fourfold::checkpoint {
namespace {

constexpr const char* kCommit = "0123456789abcdef0123456789abcdef01234567";

HubEnvironment cache_at(const TempFolder& folder) {
  return {.hf_hub_cache = folder.path().string(),
          .huggingface_hub_cache = {},
          .hf_home = {},
          .xdg_cache_home = {},
          .home = {}};
}

TEST(HubCache, PlacesTheCacheAsTheHubsToolsDo) {
  HubEnvironment environment{.hf_hub_cache = "/a",
                             .huggingface_hub_cache = "/b",
                             .hf_home = "/c",
                             .xdg_cache_home = "/d",
                             .home = "/e"};
  EXPECT_EQ(hub_cache_folder(environment), "/a");
  environment.hf_hub_cache.clear();
  EXPECT_EQ(hub_cache_folder(environment), "/b");
  environment.huggingface_hub_cache.clear();
  EXPECT_EQ(hub_cache_folder(environment), "/c/hub");
  environment.hf_home = "~/models";
  EXPECT_EQ(hub_cache_folder(environment), "/e/models/hub");
  environment.hf_home.clear();
  EXPECT_EQ(hub_cache_folder(environment), "/d/huggingface/hub");
  environment.xdg_cache_home.clear();
  EXPECT_EQ(hub_cache_folder(environment), "/e/.cache/huggingface/hub");
}

TEST(HubCache, FindsAFolder) {
  TempFolder folder;
  folder.write("model/config.json", "{}");
  const std::string path = (folder.path() / "model").string();
  EXPECT_EQ(find_model(path, {}), path);
}

TEST(HubCache, FindsTheSnapshotOfMain) {
  TempFolder folder;
  const std::string entry = "models--nvidia--Qwen3.5-397B-A17B-NVFP4/";
  folder.write(entry + "refs/main", std::string(kCommit) + "\n");
  folder.write(entry + "snapshots/" + kCommit + "/config.json", "{}");
  const auto found = find_model("nvidia/Qwen3.5-397B-A17B-NVFP4", cache_at(folder));
  EXPECT_EQ(found, folder.path() / entry / "snapshots" / kCommit);
  EXPECT_EQ(find_model(std::string("nvidia/Qwen3.5-397B-A17B-NVFP4@") + kCommit, cache_at(folder)), found);
  const std::string hint = expect_error(Code::invalid_request, {"revision v2 is not in the hub cache"}, [&] {
    find_model("nvidia/Qwen3.5-397B-A17B-NVFP4@v2", cache_at(folder));
  });
  EXPECT_EQ(hint, "fourfold pull nvidia/Qwen3.5-397B-A17B-NVFP4 --revision v2");
}

TEST(HubCache, PrintsTheDownloadLine) {
  TempFolder folder;
  const std::string hint =
      expect_error(Code::invalid_request, {"org/name is neither a folder nor in the hub cache"},
                   [&] { find_model("org/name", cache_at(folder)); });
  EXPECT_EQ(hint, "fourfold pull org/name");
}

TEST(HubCache, AnUnfinishedDownloadIsNamed) {
  TempFolder folder;
  folder.write("models--org--name/refs/main", kCommit);
  expect_error(Code::invalid_request, {"revision main is not in the hub cache"},
               [&] { find_model("org/name", cache_at(folder)); });
  folder.write(std::string("models--org--name/snapshots/") + kCommit + "/tokenizer.json", "{}");
  EXPECT_EQ(expect_error(Code::bad_checkpoint, {"the download is incomplete", "no config.json"},
                         [&] { find_model("org/name", cache_at(folder)); }),
            "fourfold pull org/name");
}

TEST(HubCache, AReferenceCannotLeaveTheCache) {
  TempFolder folder;
  folder.write("secret/config.json", "{}");
  for (const char* text : {"../../secret", "/etc", "", "0123", "0123456789ABCDEF0123456789ABCDEF01234567"}) {
    folder.write("models--org--name/refs/main", text);
    expect_error(Code::bad_checkpoint, {"which is no commit"},
                 [&] { find_model("org/name", cache_at(folder)); });
  }
}

TEST(HubCache, RefusesWhatIsNoName) {
  TempFolder folder;
  for (const char* name : {"", "name", "a/b/c", "../x", "org/..", "org/na--me", "org/name;rm", "org/$(x)",
                           "-org/name", "org/name@", "org/name@../x", "org/na me", "/absent/folder"}) {
    SCOPED_TRACE(name);
    expect_error(Code::invalid_request, {"there is no such folder"},
                 [&] { find_model(name, cache_at(folder)); });
  }
  const std::string file = folder.write("model.gguf", "x").string();
  expect_error(Code::invalid_request, {"is a file; a model is a folder"}, [&] { find_model(file, {}); });
  expect_error(Code::bad_checkpoint, {"no config.json"}, [&] { find_model(folder.path().string(), {}); });
}

}  // namespace
}  // namespace fourfold::checkpoint
