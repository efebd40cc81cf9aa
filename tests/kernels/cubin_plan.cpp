// Prints what the plan says of every compiled row, for tools/check_cubins.py: a line per row, tab-separated:
//   chip  kernel function  type of the row  name  path  format  threads  registers at most  shared bytes
// The type is what the kernel's symbol holds, so a row and its machine code find each other without a list of
// names.
#include <cxxabi.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <typeinfo>

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

namespace {

using namespace fourfold;

std::string type_name(const std::type_info& type) {
  int status = 0;
  char* const text = abi::__cxa_demangle(type.name(), nullptr, nullptr, &status);
  std::string name = status == 0 ? text : type.name();
  std::free(text);
  return name;
}

template <class List, class Facts>
void print_rows(const char* chip, const char* function, const Facts& facts_of) {
  moe::for_each_row(List{}, [&]<class Row>() {
    const plan::RowFacts facts = facts_of.template operator()<Row>();
    std::printf("%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\n", chip, function, type_name(typeid(Row)).c_str(),
                facts.row.c_str(), std::string(facts.path).c_str(), std::string(facts.format).c_str(),
                facts.threads, facts.registers, facts.total_bytes);
  });
}

template <class List>
void print_tiles(const char* chip) {
  print_rows<List>(chip, "tile_kernel", []<class Row>() { return moe_gemm::row_facts<Row>(); });
}
template <class List>
void print_streams(const char* chip) {
  print_rows<List>(chip, "stream_kernel", []<class Row>() { return moe_stream::row_facts<Row>(); });
}
// A step row has the tensor-core instruction of its kernel, if it has any.
const char* step_path(const plan::RowFacts& facts) {
  if (facts.row.find("wgmma") != std::string::npos) return "step-wgmma";
  for (const char* kernel : {"dense_few", "dense_pair", "dense_many", "dense_tall", "attend", "attend_prompt",
                             "delta_prepare", "delta_scan"})
    if (facts.kernel == kernel) return "step-mma";
  return "step";
}
template <class List>
void print_steps(const char* chip) {
  print_rows<List>(chip, "step_kernel", []<class Row>() {
    plan::RowFacts facts = Row::facts();
    facts.path = step_path(facts);
    return facts;
  });
}
template <class Arch, class Format>
void print_half(const char* chip) {
  print_streams<moe_stream::HalfRows<Arch, Format>>(chip);
  print_rows<moe_few::GateUpRows<Arch, Format>>(chip, "few_gate_up_kernel",
                                                []<class Row>() { return moe_few::gate_up_facts<Row>(); });
  print_rows<moe_few::DownRows<Arch, Format>>(chip, "few_down_kernel",
                                              []<class Row>() { return moe_few::down_facts<Row>(); });
  print_tiles<moe_gemm::MmaTiles<Arch, Format>>(chip);
}

template <class Chip>
void print_chip(const char* chip) {
  using Shared = typename Chip::Shared;
  print_half<Shared, record::Nvfp4>(chip);
  print_half<Shared, record::Mxfp4>(chip);
  print_streams<moe_stream::Fp4Rows<Shared>>(chip);
  print_tiles<moe_gemm::Fp4Tiles<Shared>>(chip);
  print_tiles<moe_gemm::Mxfp4Tiles<Shared>>(chip);
  print_streams<moe_stream::Bf16Rows<Shared>>(chip);
  print_streams<moe_stream::Fp8Rows<Shared>>(chip);
  print_tiles<moe_gemm::Bf16MmaTiles<Shared>>(chip);
  print_tiles<moe_gemm::Fp8MmaTiles<Shared>>(chip);
  print_steps<dense::Rows<Shared>>(chip);
  print_steps<step::Rows<Shared>>(chip);
  print_steps<delta::Rows<typename Chip::Own>>(chip);
  print_steps<attention::Rows<Shared>>(chip);
  print_steps<sampling::Rows<Shared>>(chip);
  print_steps<all_reduce::Rows<Shared>>(chip);
}

}  // namespace

int main() {
  print_chip<moe::Hopper>("Hopper");
  print_tiles<moe_gemm::WgmmaTiles<record::Nvfp4>>("Hopper");
  print_tiles<moe_gemm::WgmmaTiles<record::Mxfp4>>("Hopper");
  print_tiles<moe_gemm::PlainWgmmaTiles<record::Bf16Format>>("Hopper");
  print_tiles<moe_gemm::PlainWgmmaTiles<record::Fp8Format>>("Hopper");
  print_steps<attention::HopperRows<moe::Hopper::Own>>("Hopper");
  print_chip<moe::Workstation>("Workstation");
  return 0;
}
