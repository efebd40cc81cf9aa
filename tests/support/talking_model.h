// A small model that can be talked to: golden weights, a made-up tokenizer and template.
#pragma once

#include <filesystem>
#include <string>

#include "tests/checkpoint/support.h"
#include "text/made_up_tokenizer.h"

namespace fourfold::cli {

inline constexpr int kMicroVocabulary = 320;

class TalkingModel {
 public:
  TalkingModel() {
    for (const auto& entry : std::filesystem::directory_iterator(checkpoint::golden_model("bf16")))
      if (entry.path().filename() != "generation_config.json")
        std::filesystem::create_symlink(entry.path(), folder_.path() / entry.path().filename());
    folder_.write("tokenizer.json", text::make_tokenizer_json(kMicroVocabulary));
    folder_.write("tokenizer_config.json", text::make_tokenizer_config());
    folder_.write("chat_template.jinja", text::make_chat_template());
    folder_.write("generation_config.json", text::make_generation_config(kMicroVocabulary));
  }
  std::string path() const { return folder_.path().string(); }
  const checkpoint::TempFolder& folder() const { return folder_; }
  void remove(const char* name) const { std::filesystem::remove(folder_.path() / name); }

 private:
  checkpoint::TempFolder folder_;
};

}  // namespace fourfold::cli
