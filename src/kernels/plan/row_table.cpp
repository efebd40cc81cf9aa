#include "kernels/plan/row_table.h"

#include <algorithm>

#include "kernels/all_reduce/rows.h"
#include "kernels/attention/rows.h"
#include "kernels/delta/rows.h"
#include "kernels/dense/rows.h"
#include "kernels/moe/chips.h"
#include "kernels/moe_few/rows.h"
#include "kernels/moe_gemm/rows.h"
#include "kernels/moe_stream/rows.h"
#include "kernels/sampling/rows.h"
#include "kernels/step/rows.h"

namespace fourfold::kernels {
namespace {

using plan::RowFacts;
using record::Bf16Format;
using record::Fp8Format;
using record::Mxfp4;
using record::Nvfp4;

template <class List>
void add_streams(std::vector<RowFacts>& rows) {
  moe::for_each_row(List{}, [&]<class Row>() { rows.push_back(moe_stream::row_facts<Row>()); });
}
template <class List>
void add_tiles(std::vector<RowFacts>& rows) {
  moe::for_each_row(List{}, [&]<class Row>() { rows.push_back(moe_gemm::row_facts<Row>()); });
}
template <class List>
void add_few_gate_up(std::vector<RowFacts>& rows) {
  moe::for_each_row(List{}, [&]<class Row>() { rows.push_back(moe_few::gate_up_facts<Row>()); });
}
template <class List>
void add_few_down(std::vector<RowFacts>& rows) {
  moe::for_each_row(List{}, [&]<class Row>() { rows.push_back(moe_few::down_facts<Row>()); });
}

// Rows of a kernel stand together, in the order in which kernels first appear.
std::vector<RowFacts> grouped(const std::vector<RowFacts>& rows) {
  std::vector<std::string_view> kernels;
  for (const RowFacts& row : rows)
    if (std::find(kernels.begin(), kernels.end(), row.kernel) == kernels.end()) kernels.push_back(row.kernel);
  std::vector<RowFacts> out;
  for (const std::string_view kernel : kernels)
    for (const RowFacts& row : rows)
      if (row.kernel == kernel) out.push_back(row);
  return out;
}
template <class List>
void add_step_list(std::vector<RowFacts>& rows) {
  moe::for_each_row(List{}, [&]<class Row>() { rows.push_back(Row::facts()); });
}

// The lists of kernels/launch/sim_parts.h and cuda_parts.cuh; a test compares the names with the simulator's.
template <class Arch>
void add_shared(std::vector<RowFacts>& rows) {
  add_streams<moe_stream::HalfRows<Arch, Nvfp4>>(rows);
  add_streams<moe_stream::HalfRows<Arch, Mxfp4>>(rows);
  add_streams<moe_stream::Fp4Rows<Arch>>(rows);
  add_tiles<moe_gemm::MmaTiles<Arch, Nvfp4>>(rows);
  add_tiles<moe_gemm::MmaTiles<Arch, Mxfp4>>(rows);
  add_tiles<moe_gemm::Fp4Tiles<Arch>>(rows);
  add_tiles<moe_gemm::Mxfp4Tiles<Arch>>(rows);
  add_streams<moe_stream::Bf16Rows<Arch>>(rows);
  add_streams<moe_stream::Fp8Rows<Arch>>(rows);
  add_tiles<moe_gemm::Bf16MmaTiles<Arch>>(rows);
  add_tiles<moe_gemm::Fp8MmaTiles<Arch>>(rows);
}
template <class Arch>
void add_few(std::vector<RowFacts>& rows) {
  add_few_gate_up<moe_few::GateUpRows<Arch, Nvfp4>>(rows);
  add_few_gate_up<moe_few::GateUpRows<Arch, Mxfp4>>(rows);
  add_few_down<moe_few::DownRows<Arch, Nvfp4>>(rows);
  add_few_down<moe_few::DownRows<Arch, Mxfp4>>(rows);
}

// The lists of kernels/launch/sim_step_parts.h and cuda_step_parts.cuh.
template <class Arch, class Own = Arch>
void add_step(std::vector<RowFacts>& rows) {
  add_step_list<dense::Rows<Arch>>(rows);
  add_step_list<step::Rows<Arch>>(rows);
  add_step_list<delta::Rows<Own>>(rows);
  add_step_list<attention::Rows<Arch>>(rows);
  add_step_list<sampling::Rows<Arch>>(rows);
  add_step_list<all_reduce::Rows<Arch>>(rows);
}

}  // namespace

std::vector<RowFacts> rows_of(const plan::ArchFacts& arch) {
  std::vector<RowFacts> rows;
  if (arch == plan::kSm90) {
    add_shared<moe::Hopper::Shared>(rows);
    add_tiles<moe_gemm::WgmmaTiles<Nvfp4>>(rows);
    add_tiles<moe_gemm::WgmmaTiles<Mxfp4>>(rows);
    add_tiles<moe_gemm::PlainWgmmaTiles<Bf16Format>>(rows);
    add_tiles<moe_gemm::PlainWgmmaTiles<Fp8Format>>(rows);
    add_few<moe::Hopper::Shared>(rows);
    add_step<moe::Hopper::Shared, moe::Hopper::Own>(rows);
    add_step_list<attention::HopperRows<moe::Hopper::Own>>(rows);
  } else if (arch == plan::kSm120) {
    add_shared<plan::Sm120>(rows);
    add_few<plan::Sm120>(rows);
    add_step<plan::Sm120>(rows);
  } else if (arch == plan::kSm121) {
    add_shared<plan::Sm121>(rows);
    add_few<plan::Sm121>(rows);
    add_step<plan::Sm121>(rows);
  }
  return grouped(rows);
}

}  // namespace fourfold::kernels
