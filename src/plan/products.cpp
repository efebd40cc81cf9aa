#include "plan/products.h"

#include <cctype>
#include <string>

namespace fourfold::plan {
namespace {

// Words a name may carry or lack without meaning another chip.
constexpr std::array<std::string_view, 7> kBrandWords{"nvidia",  "geforce",  "rtx", "blackwell",
                                                      "edition", "graphics", "gpu"};

struct Alias {
  std::string_view words;  // as normalised() writes them
  std::string_view product;
};

// The short names people use and the long ones drivers report, where they are not the product's own.
constexpr std::array<Alias, 22> kAliases{{
    {"pro6000", "RTX PRO 6000 Blackwell Workstation"},
    {"6000pro", "RTX PRO 6000 Blackwell Workstation"},
    {"pro6000workstation", "RTX PRO 6000 Blackwell Workstation"},
    {"pro6000maxqworkstation", "RTX PRO 6000 Blackwell Max-Q"},
    {"gb10", "DGX Spark GB10"},
    {"spark", "DGX Spark GB10"},
    {"dgxspark", "DGX Spark GB10"},
    {"h100", "H100 SXM"},
    {"h100sxm5", "H100 SXM"},
    {"h10080gbhbm3", "H100 SXM"},
    {"h200sxm", "H200"},
    {"h200sxm5", "H200"},
    {"b200sxm", "B200"},
    {"a100", "A100 80GB SXM"},
    {"a10080gb", "A100 80GB SXM"},
    {"a100sxm480gb", "A100 80GB SXM"},
    {"a100sxm", "A100 80GB SXM"},
    {"a100pcie", "A100 80GB PCIe"},
    {"a100pcie80gb", "A100 80GB PCIe"},
    {"a100sxm440gb", "A100 40GB"},
    {"a100pcie40gb", "A100 40GB"},
    {"a100sxm40gb", "A100 40GB"},
}};

bool is_brand_word(std::string_view word) {
  for (std::string_view brand : kBrandWords) {
    if (word == brand) return true;
  }
  return false;
}

bool is_digit(char letter) { return std::isdigit(static_cast<unsigned char>(letter)) != 0; }

// Lower case, letters and digits only, brand words dropped: "NVIDIA GeForce RTX 5070 Ti" becomes "5070ti". A
// word also ends between letters and digits, so that "rtx5070ti" reads the same.
std::string normalised(std::string_view name) {
  std::string out, word;
  const auto finish_word = [&] {
    if (!is_brand_word(word)) out += word;
    word.clear();
  };
  for (char letter : name) {
    const bool is_word = std::isalnum(static_cast<unsigned char>(letter)) != 0;
    if (!is_word || (!word.empty() && is_digit(word.back()) != is_digit(letter))) finish_word();
    if (is_word) word += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  }
  finish_word();
  return out;
}

const Product* product_named(std::string_view name) {
  for (const Product& product : kProducts) {
    if (product.name == name) return &product;
  }
  return nullptr;
}

}  // namespace

const Product* find_product(std::string_view name) {
  const std::string wanted = normalised(name);
  if (wanted.empty()) return nullptr;
  for (const Product& product : kProducts) {
    if (wanted == normalised(product.name)) return &product;
  }
  for (const Alias& alias : kAliases) {
    if (wanted == alias.words) return product_named(alias.product);
  }
  return nullptr;
}

}  // namespace fourfold::plan
