// Products people own: how many SMs, how fast their memory. Used for rooflines, for `fourfold doctor` and
// for plans made without the card. Every number says where it comes from; a product that is not listed is
// unknown, not guessed.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "plan/arch.h"

namespace fourfold::plan {

struct Product {
  std::string_view name;
  const ArchFacts* arch;
  int sm_count;
  int bandwidth_gb_per_s;  // of memory, decimal gigabytes, as published
  int memory_mib;          // as the driver shows it, or as sold: cards are sold in GiB
  std::optional<int> measured_read_gb_per_s;
  std::string_view evidence;
};

// What a card sold with so many GB holds: they are GiB, of which the driver keeps up to 2 %.
constexpr double bytes_as_sold(double gb) { return gb * (1 << 30); }

inline constexpr std::string_view kPublished = "published by NVIDIA";

inline constexpr std::array<Product, 14> kProducts{{
    {"RTX PRO 6000 Blackwell Workstation", &kSm120, 188, 1'792, 97'887, std::nullopt, kPublished},
    {"RTX PRO 6000 Blackwell Max-Q", &kSm120, 188, 1'792, 97'887, std::nullopt, kPublished},
    {"RTX PRO 6000 Blackwell Server", &kSm120, 188, 1'597, 97'887, std::nullopt, kPublished},
    {"RTX 5090", &kSm120, 170, 1'792, 32'607, std::nullopt, kPublished},
    {"RTX 5080", &kSm120, 84, 960, 16 * 1024, std::nullopt, kPublished},
    {"RTX 5070 Ti", &kSm120, 70, 896, 16 * 1024, std::nullopt, kPublished},
    {"DGX Spark GB10", &kSm121, 48, 273, 122'559, std::nullopt, kPublished},
    {"H100 SXM", &kSm90, 132, 3'350, 80 * 1024, std::nullopt, kPublished},
    {"H200", &kSm90, 132, 4'800, 143'771, 4'547, "published by NVIDIA; read speed measured by us"},
    {"B200", &kSm100, 148, 8'000, 180 * 1024, std::nullopt,
     "published by NVIDIA (HGX); SM count from device reports"},
    {"RTX 4090", &kSm89, 128, 1'008, 24 * 1024, std::nullopt, kPublished},
    {"A100 80GB SXM", &kSm80, 108, 2'039, 80 * 1024, std::nullopt, kPublished},
    {"A100 80GB PCIe", &kSm80, 108, 1'935, 80 * 1024, std::nullopt, kPublished},
    {"A100 40GB", &kSm80, 108, 1'555, 40 * 1024, std::nullopt, kPublished},
}};

// Finds a product by what a user types ("5090", "rtx pro 6000", "spark") or a driver reports ("NVIDIA
// GeForce RTX 5090", "NVIDIA A100-SXM4-80GB"). Case, punctuation and brand words do not matter; any other
// word does, so that "RTX 5090 Laptop GPU" or "H100 PCIe", which are other chips, find nothing.
const Product* find_product(std::string_view name);

}  // namespace fourfold::plan
