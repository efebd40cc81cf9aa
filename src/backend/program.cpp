// A program's text.
#include "backend/program.h"

#include "backend/window_pages.h"
#include "base/format.h"

namespace fourfold::backend {
namespace {

// Writes "name=operand" for each field, results aside.
struct FieldPrinter {
  const Program& program;
  std::string results;
  std::string arguments;

  void add(std::string_view field, std::string_view text) {
    if (!arguments.empty()) arguments += ", ";
    arguments += format("{}={}", field, text);
  }
  void operator()(std::string_view, ResultId id) {
    if (!results.empty()) results += ", ";
    results += program.value(id).name;
  }
  void operator()(std::string_view field, ValueId id) { add(field, program.value(id).name); }
  void operator()(std::string_view field, MatrixId id) { add(field, program.matrix(id).matrix->name); }
  void operator()(std::string_view field, VectorId id) { add(field, program.vector(id).name); }
  void operator()(std::string_view field, OptionalVectorId id) {
    if (id.is_there()) add(field, program.vector(id).name);
  }
  void operator()(std::string_view field, ExpertSetId id) { add(field, program.expert_set(id).name); }
  void operator()(std::string_view field, KvCacheId id) { add(field, program.kv_cache(id).name); }
  void operator()(std::string_view field, DeltaStateId id) { add(field, program.delta_state(id).name); }
  void operator()(std::string_view field, RopeId id) { add(field, format("rope{}", id.index)); }
  void operator()(std::string_view field, auto number) { add(field, format("{}", number)); }
};

}  // namespace

std::string_view pass_name(Pass pass) { return pass == Pass::main ? "main" : "draft"; }

std::int64_t anchor_bytes(const Program& program, std::int64_t page_tokens) {
  std::int64_t bytes = 0;
  for (const DeltaState& state : program.delta_states)
    bytes += 4 * (state.value_dim() * state.key_head_dim + (state.conv_taps - 1) * state.conv_dim());
  const std::int64_t positions = page_tokens * WindowPages::seen_count(program, page_tokens);
  for (const KvCache& cache : program.kv_caches)
    if (cache.window > 0) bytes += positions * cache.stored_columns() * element_bytes(cache.format);
  return bytes;
}

std::string to_text(const Program& program, Pass pass) {
  std::string text;
  for (const Op& op : program.ops(pass)) {
    std::visit(
        [&](const auto& known) {
          FieldPrinter printer{program, {}, {}};
          known.fields(printer);
          if (!printer.results.empty()) text += printer.results + " = ";
          text += format("{}({})\n", known.name, printer.arguments);
        },
        op);
  }
  return text;
}

}  // namespace fourfold::backend
