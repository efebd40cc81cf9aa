// What can be asked before anything runs: which rows there are, which of them a layer would take.
#include <string>
#include <vector>

#include "base/format.h"
#include "kernels/c_api/door.h"
#include "plan/row_tables.h"

using namespace fourfold;

extern "C" {

fourfold_status fourfold_choose(const char* arch, const fourfold_layer_options* options,
                                fourfold_choice* choice) {
  return c_api::enter([&] {
    const std::string_view name = &c_api::required(arch, "the architecture's name");
    const plan::ArchFacts* const facts = plan::find_arch(name);
    if (facts == nullptr)
      fail(Code::unsupported_device, "unknown architecture '{}'; known are {}", name, plan::arch_names());
    const auto request = c_api::request_of(c_api::read_options(options, "fourfold_layer_options"));
    c_api::write_answer(choice, c_api::answer_of(moe_layer::choose(*facts, request)), "fourfold_choice",
                        c_api::kFirstChoiceBytes);
  });
}

fourfold_status fourfold_plan_json(const fourfold_context* context, char* text, size_t capacity,
                                   size_t* needed) {
  return c_api::enter([&] {
    const fourfold_context& own = c_api::required(context, "the context");
    std::size_t& bytes = c_api::required(needed, "the place for the size");
    std::vector<plan::RowFacts> rows;
    for (const auto kind :
         {kernels::RowKind::gemm, kernels::RowKind::few_gate_up, kernels::RowKind::few_down})
      rows.insert(rows.end(), own.machine->rows(kind).begin(), own.machine->rows(kind).end());
    const std::string json = plan::table_json(rows, {}, own.machine->arch().smem_bytes_per_block);
    bytes = json.size() + 1;
    if (capacity == 0) return;
    if (capacity < bytes)
      fail(Code::invalid_request, "the text needs {} bytes; there is room for {}", bytes, capacity);
    std::memcpy(&c_api::required(text, "the place for the text"), json.c_str(), bytes);
  });
}

}  // extern "C"
