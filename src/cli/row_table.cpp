#include "cli/row_table.h"

#include "kernels/moe/chips.h"
#include "kernels/moe_few/rows.h"
#include "kernels/moe_gemm/rows.h"
#include "kernels/moe_stream/rows.h"

namespace fourfold::cli {
namespace {

using plan::RowFacts;
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
}
template <class Arch>
void add_few(std::vector<RowFacts>& rows) {
  add_few_gate_up<moe_few::GateUpRows<Arch, Nvfp4>>(rows);
  add_few_gate_up<moe_few::GateUpRows<Arch, Mxfp4>>(rows);
  add_few_down<moe_few::DownRows<Arch, Nvfp4>>(rows);
  add_few_down<moe_few::DownRows<Arch, Mxfp4>>(rows);
}

}  // namespace

std::vector<RowFacts> rows_of(const plan::ArchFacts& arch) {
  std::vector<RowFacts> rows;
  if (arch == plan::kSm90) {
    add_shared<moe::Hopper::Shared>(rows);
    add_tiles<moe_gemm::WgmmaTiles<Nvfp4>>(rows);
    add_tiles<moe_gemm::WgmmaTiles<Mxfp4>>(rows);
    add_few<moe::Hopper::Shared>(rows);
  } else if (arch == plan::kSm120) {
    add_shared<plan::Sm120>(rows);
    add_few<plan::Sm120>(rows);
  } else if (arch == plan::kSm121) {
    add_shared<plan::Sm121>(rows);
    add_few<plan::Sm121>(rows);
  }
  return rows;
}

}  // namespace fourfold::cli
