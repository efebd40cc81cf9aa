#include "evaluate/reference_file.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "base/error.h"

namespace fourfold::evaluate {
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

std::vector<std::int32_t> ReferenceFile::integers(const std::string& name, std::string_view what,
                                                  std::int64_t limit) const {
  const checkpoint::TensorView tensor = file_.required(name);
  if (tensor.dtype != checkpoint::DType::i64 || tensor.shape.rank() != 1)
    fail(Code::bad_checkpoint, "{}: {} is {}; I64 of one dimension is needed", file_.file().path().string(),
         name, describe(tensor));
  std::vector<std::int32_t> out;
  for (const std::int64_t number : file_.copy<std::int64_t>(tensor)) {
    if (number < 0 || number >= limit)
      fail(Code::bad_checkpoint, "{}: {} holds the {} {}; there are {}", file_.file().path().string(), name,
           what, number, limit);
    out.push_back(static_cast<std::int32_t>(number));
  }
  return out;
}

std::vector<std::int32_t> ReferenceFile::rows(const std::string& name, std::int64_t tokens) const {
  if (!has(name)) {
    std::vector<std::int32_t> all(static_cast<std::size_t>(tokens));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  std::vector<std::int32_t> out = integers(name, "row", tokens);
  const bool ascending = std::adjacent_find(out.begin(), out.end(), std::greater_equal<>()) == out.end();
  if (out.empty() || !ascending || out.back() != tokens - 1)
    fail(Code::bad_checkpoint, "{}: {} must rise and end with {}, the prompt's last row",
         file_.file().path().string(), name, tokens - 1);
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
  prompt.ids = integers(name + std::string(kIdsSuffix), "token", vocab);
  const auto tokens = static_cast<std::int64_t>(prompt.ids.size());
  if (tokens < 1)
    fail(Code::bad_checkpoint, "{}: the prompt {} has no tokens", file_.file().path().string(), name);
  prompt.rows = rows(name + ".rows", tokens);
  const auto kept = static_cast<std::int64_t>(prompt.rows.size());
  prompt.logits = floats(name + ".logits_f32", {kept, vocab});
  prompt.hidden = floats(name + ".hidden_f32", {static_cast<std::int64_t>(program.layer_outputs.size()), kept,
                                                program.hidden_size});
  prompt.final_norm = floats(name + ".final_norm_f32", {kept, program.hidden_size});
  prompt.greedy_ids = integers(name + ".greedy_ids", "token", vocab);
  const auto continued = static_cast<std::int64_t>(prompt.greedy_ids.size());
  prompt.greedy_gap = floats(name + ".greedy_gap", {continued});
  if (has(name + ".greedy_logits_f32"))
    prompt.greedy_logits = floats(name + ".greedy_logits_f32", {continued, vocab});
  if (prompt.greedy_ids.empty())
    fail(Code::bad_checkpoint, "{}: {}.greedy_ids has no tokens", file_.file().path().string(), name);
  if (!has(name + ".mtp_draft_ids")) return prompt;
  prompt.mtp_logits = floats(name + ".mtp_logits_f32", {kept - 1, vocab});
  prompt.draft_ids = integers(name + ".mtp_draft_ids", "token", vocab);
  prompt.draft_logits =
      floats(name + ".mtp_draft_logits_f32", {static_cast<std::int64_t>(prompt.draft_ids.size()), vocab});
  return prompt;
}

}  // namespace fourfold::evaluate
