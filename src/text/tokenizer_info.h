// What a client may know of a model's tokenizer, for clients that bring none of their own.
#pragma once

#include <filesystem>
#include <string>

#include "text/chat_template.h"

namespace fourfold::text {

// tokenizer_config.json as Hugging Face's tokenizers hold it, in the shape of vLLM's /tokenizer_info: tokens
// are their text, names of files are left out, the template is the one in use. `eos_token` stands in where
// the file has none. Throws io or bad_checkpoint.
std::string tokenizer_info(const std::filesystem::path& model_folder,
                           const std::optional<ChatTemplate>& chat_template, std::string_view eos_token);

}  // namespace fourfold::text
