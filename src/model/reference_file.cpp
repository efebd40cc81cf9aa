#include "model/reference_file.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace fourfold::model {
namespace {

constexpr std::string_view kIdsSuffix = ".input_ids";

}  // namespace

ReferenceFile::ReferenceFile(const std::filesystem::path& path, const backend::Program& program)
    : file_(path) {
  std::vector<std::string> names;
  for (const checkpoint::TensorEntry& entry : file_.entries())
    if (entry.name.ends_with(kIdsSuffix))
      names.push_back(entry.name.substr(0, entry.name.size() - kIdsSuffix.size()));
  if (names.empty())
    fail_with_hint(Code::bad_checkpoint, "such files are written by make_tiny_qwen35.py of the golden models",
                   "{}: there is no tensor *.input_ids, so this is no file of reference outputs",
                   path.string());
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) prompts_.push_back(read(name, program));
}

bool ReferenceFile::has(const std::string& name) const {
  const auto entries = file_.entries();
  return std::any_of(entries.begin(), entries.end(), [&](const auto& entry) { return entry.name == name; });
}

std::vector<std::int32_t> ReferenceFile::ids(const std::string& name, std::int64_t vocab_size) const {
  const checkpoint::TensorView tensor = file_.required(name);
  if (tensor.dtype != checkpoint::DType::i64 || tensor.shape.rank() != 1)
    fail(Code::bad_checkpoint, "{}: {} is {}; I64 of one dimension is needed", file_.file().path().string(),
         name, describe(tensor));
  std::vector<std::int32_t> out;
  for (const std::int64_t id : file_.copy<std::int64_t>(tensor)) {
    if (id < 0 || id >= vocab_size)
      fail(Code::bad_checkpoint, "{}: {} holds the token {}; the model has {}", file_.file().path().string(),
           name, id, vocab_size);
    out.push_back(static_cast<std::int32_t>(id));
  }
  return out;
}

std::span<const float> ReferenceFile::floats(const std::string& name, const checkpoint::Shape& shape) {
  const checkpoint::TensorView tensor = file_.required(name);
  if (tensor.dtype != checkpoint::DType::f32 || tensor.shape != shape)
    fail_with_hint(Code::bad_checkpoint, "was the file made from this model?",
                   "{}: {} is {}; this model and its prompt need F32 {}", file_.file().path().string(), name,
                   describe(tensor), to_string(shape));
  const std::vector<float>& values = kept_.emplace_back(file_.copy<float>(tensor));
  for (const float x : values)
    if (!std::isfinite(x))
      fail(Code::bad_checkpoint, "{}: {} holds a number that is NaN or infinite",
           file_.file().path().string(), name);
  return values;
}

PromptReference ReferenceFile::read(const std::string& name, const backend::Program& program) {
  const std::int64_t vocab = program.vocab_size;
  PromptReference prompt;
  prompt.name = name;
  prompt.ids = ids(name + std::string(kIdsSuffix), vocab);
  const auto tokens = static_cast<std::int64_t>(prompt.ids.size());
  if (tokens < 1)
    fail(Code::bad_checkpoint, "{}: the prompt {} has no tokens", file_.file().path().string(), name);
  prompt.logits = floats(name + ".logits_f32", {tokens, vocab});
  prompt.hidden = floats(name + ".hidden_f32", {static_cast<std::int64_t>(program.layer_outputs.size()),
                                                tokens, program.hidden_size});
  prompt.final_norm = floats(name + ".final_norm_f32", {tokens, program.hidden_size});
  prompt.greedy_ids = ids(name + ".greedy_ids", vocab);
  prompt.greedy_gap = floats(name + ".greedy_gap", {static_cast<std::int64_t>(prompt.greedy_ids.size())});
  if (prompt.greedy_ids.empty())
    fail(Code::bad_checkpoint, "{}: {}.greedy_ids has no tokens", file_.file().path().string(), name);
  if (!has(name + ".mtp_draft_ids")) return prompt;
  prompt.mtp_logits = floats(name + ".mtp_logits_f32", {tokens - 1, vocab});
  prompt.draft_ids = ids(name + ".mtp_draft_ids", vocab);
  prompt.draft_logits =
      floats(name + ".mtp_draft_logits_f32", {static_cast<std::int64_t>(prompt.draft_ids.size()), vocab});
  return prompt;
}

}  // namespace fourfold::model
