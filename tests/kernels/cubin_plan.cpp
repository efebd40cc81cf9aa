// Prints what the plan says of every compiled row, for tools/check_cubins.py: a line per row, tab-separated:
//   chip  kernel function  type of the row  name  path  format  threads  registers at most  shared bytes
// The type is what the kernel's symbol holds, so a row and its machine code find each other without a list of
// names.
#include <cxxabi.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <typeinfo>

#include "all_rows.h"
#include "kernels/launch/row.h"
#include "kernels/moe/chips.h"

namespace {

using namespace fourfold;

std::string type_name(const std::type_info& type) {
  int status = 0;
  char* const text = abi::__cxa_demangle(type.name(), nullptr, nullptr, &status);
  std::string name = status == 0 ? text : type.name();
  std::free(text);
  return name;
}

// What the code of a row is made of: its path, and of a step row its tensor-core instruction, if it has any.
template <class Row>
std::string path_of(const plan::RowFacts& facts) {
  if constexpr (requires { Row::products; })
    if (Row::products[0] != '\0') return std::string(facts.path) + "-" + Row::products;
  return std::string(facts.path);
}

template <class Chip>
void print_chip(const char* chip) {
  moe::for_each_row(kernels::AllRows<Chip>{}, [&]<class Row>() {
    const plan::RowFacts facts = Row::facts();
    std::printf("%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\n", chip, "row_kernel", type_name(typeid(Row)).c_str(),
                facts.row.c_str(), path_of<Row>(facts).c_str(), std::string(facts.format).c_str(),
                facts.threads, facts.registers, facts.total_bytes);
  });
}

}  // namespace

int main() {
  print_chip<moe::Hopper>("Hopper");
  print_chip<moe::Workstation>("Workstation");
  return 0;
}
