// The rows of the few-token kernels: a streaming row for GEMM1 and one for GEMM2, whose blocks own a strip of
// the output.
#pragma once

#include "kernels/moe_few/moe_few.h"
#include "kernels/moe_stream/rows.h"

namespace fourfold::moe_few {

// Registers are capped so that blocks of one kernel and of the next share an SM: GEMM2 then starts, routes
// and fetches its weights before GEMM1 ends. (All of a segment in flight, 168 registers, lost more by that
// than it won.)
// clang-format off
template <class Arch, class Format>
using GateUpRows = moe::RowList<
    //                                                   N unit warps depth blocks
    moe_stream::StreamRow<Arch, moe::W4a16Mma, Format,   8,  8,   4,    4,    4>,
    moe_stream::StreamRow<Arch, moe::W4a16Mma, Format,   8,  4,   4,    2,    4>,
    moe_stream::StreamRow<Arch, moe::W4a16Mma, Format,   8,  1,   4,    1,    4>>;

template <class Arch, class Format>
using DownRows = moe::RowList<
    moe_stream::StreamRow<Arch, moe::W4a16Mma, Format,   8,  8,   8,    4,    2>,
    moe_stream::StreamRow<Arch, moe::W4a16Mma, Format,   8,  4,   8,    4,    2>,
    moe_stream::StreamRow<Arch, moe::W4a16Mma, Format,   8,  1,   8,    1,    2>>;
// clang-format on

template <class Row>
std::string gate_up_name() {
  return moe::row_name("moe_few_gate_up", record::kRows, kFewTokens, Row::unit_records * record::kColumns,
                       Row::Path::name, Row::Format::name);
}
template <class Row>
std::string down_name() {
  return moe::row_name("moe_few_down", record::kRows, kFewTokens, Row::unit_records * record::kColumns,
                       Row::Path::name, Row::Format::name);
}

template <class Row, class Storage>
plan::RowFacts few_facts(std::string kernel, std::string name) {
  plan::RowFacts facts = moe_stream::row_facts<Row>();
  facts.kernel = std::move(kernel);
  facts.row = std::move(name);
  facts.n = kFewTokens;
  const int route = static_cast<int>(sizeof(FewRoute)), total = static_cast<int>(sizeof(Storage));
  facts.parts = {{"routing", route}, {"sums", total - route}};
  facts.total_bytes = total;
  return facts;
}
template <class Row>
plan::RowFacts gate_up_facts() {
  static_assert(plan::FitsSharedMemory<sizeof(GateUpStorage<Row>),
                                       plan::smem_budget_for(Row::Arch::facts, Row::blocks_per_sm)>::value);
  return few_facts<Row, GateUpStorage<Row>>("moe_few_gate_up", gate_up_name<Row>());
}
template <class Row>
plan::RowFacts down_facts() {
  static_assert(
      plan::FitsSharedMemory<sizeof(DownStorage<Row>), plan::smem_budget_for(Row::Arch::facts, 1)>::value);
  plan::RowFacts facts = few_facts<Row, DownStorage<Row>>("moe_few_down", down_name<Row>());
  facts.limit_bytes = plan::smem_budget_for(Row::Arch::facts, 1);
  facts.blocks_per_sm =
      plan::blocks_per_sm(Row::Arch::facts, facts.threads, facts.registers, facts.total_bytes);
  return facts;
}

}  // namespace fourfold::moe_few
