#include "plan/products.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>

namespace fourfold::plan {
namespace {

std::string_view found(std::string_view name) {
  const Product* product = find_product(name);
  return product == nullptr ? "nothing" : product->name;
}

TEST(Products, EveryProductIsFoundByItsOwnName) {
  std::set<std::string_view> names;
  for (const Product& product : kProducts) {
    EXPECT_EQ(find_product(product.name), &product);
    EXPECT_TRUE(names.insert(product.name).second) << product.name;
  }
}

TEST(Products, AreFoundByWhatDriversReport) {
  EXPECT_EQ(found("NVIDIA RTX PRO 6000 Blackwell Workstation Edition"), "RTX PRO 6000 Blackwell Workstation");
  EXPECT_EQ(found("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"), "RTX PRO 6000 Blackwell Max-Q");
  EXPECT_EQ(found("NVIDIA RTX PRO 6000 Blackwell Server Edition"), "RTX PRO 6000 Blackwell Server");
  EXPECT_EQ(found("NVIDIA GeForce RTX 5090"), "RTX 5090");
  EXPECT_EQ(found("NVIDIA GeForce RTX 5070 Ti"), "RTX 5070 Ti");
  EXPECT_EQ(found("NVIDIA GB10"), "DGX Spark GB10");
  EXPECT_EQ(found("NVIDIA H100 80GB HBM3"), "H100 SXM");
  EXPECT_EQ(found("NVIDIA H200"), "H200");
  EXPECT_EQ(found("NVIDIA A100-SXM4-80GB"), "A100 80GB SXM");
  EXPECT_EQ(found("NVIDIA A100-PCIE-40GB"), "A100 40GB");
}

TEST(Products, AreFoundByWhatPeopleType) {
  EXPECT_EQ(found("5090"), "RTX 5090");
  EXPECT_EQ(found("rtx5090"), "RTX 5090");
  EXPECT_EQ(found("rtx pro 6000"), "RTX PRO 6000 Blackwell Workstation");
  EXPECT_EQ(found("RTX-5080"), "RTX 5080");
  EXPECT_EQ(found("5070ti"), "RTX 5070 Ti");
  EXPECT_EQ(found("spark"), "DGX Spark GB10");
  EXPECT_EQ(found("h100"), "H100 SXM");
}

TEST(Products, OtherChipsOfASimilarNameFindNothing) {
  for (const char* name :
       {"NVIDIA GeForce RTX 5090 Laptop GPU", "NVIDIA GeForce RTX 4090 D", "NVIDIA H100 PCIe",
        "NVIDIA H100 NVL", "RTX 6000 Ada Generation", "RTX 5070", "6000", "", "NVIDIA"}) {
    EXPECT_EQ(find_product(name), nullptr) << name;
  }
}

TEST(Products, NumbersCarryTheirEvidence) {
  for (const Product& product : kProducts) {
    EXPECT_GT(product.sm_count, 0);
    EXPECT_FALSE(product.evidence.empty());
    EXPECT_EQ(product.measured_read_gb_per_s.has_value(),
              product.evidence.find("measured by us") != product.evidence.npos);
    if (product.measured_read_gb_per_s) {
      EXPECT_LT(*product.measured_read_gb_per_s, product.bandwidth_gb_per_s);
    }
  }
  EXPECT_EQ(find_product("H200")->measured_read_gb_per_s, 4'547);
  EXPECT_EQ(find_product("GB10")->arch, &kSm121);
}

// What NVML said on the machines that were recorded for the doctor.
TEST(Products, MemoryIsWhatDriversShow) {
  std::set<std::string_view> seen;
  for (const auto& entry :
       std::filesystem::directory_iterator(FOURFOLD_SOURCE_DIR "/tests/doctor/machines")) {
    std::ifstream file(entry.path() / "machine.txt");
    std::map<std::string, std::string> facts;
    for (std::string line; std::getline(file, line);)
      if (const std::size_t at = line.find(" = "); at != std::string::npos)
        facts[line.substr(0, at)] = line.substr(at + 3);
    for (int i = 0; facts.contains("nvml " + std::to_string(i) + " name"); ++i) {
      const std::string gpu = "nvml " + std::to_string(i) + " ";
      const Product* product = find_product(facts[gpu + "name"]);
      if (product == nullptr || facts[gpu + "memory"].empty()) continue;
      EXPECT_EQ(product->memory_mib, std::stoi(facts[gpu + "memory"]))
          << entry.path() << " " << product->name;
      seen.insert(product->name);
    }
  }
  for (const char* name : {"RTX PRO 6000 Blackwell Workstation", "RTX 5090", "H200"})
    EXPECT_TRUE(seen.contains(name)) << name;
}

// "32 GB" on the box is 32 GiB on the card, of which the driver keeps a little; as 32 * 10^9 bytes it would
// be less than what is there.
TEST(Products, GigabytesAsSoldAreGiB) {
  for (const auto& [name, sold] : {std::pair{"5090", 32}, {"rtx pro 6000", 96}, {"h200", 141}}) {
    const double bytes = static_cast<double>(find_product(name)->memory_mib) * (1 << 20);
    EXPECT_LE(bytes, bytes_as_sold(sold)) << name;
    EXPECT_GE(bytes, 0.98 * bytes_as_sold(sold)) << name;
    EXPECT_GT(bytes, 1e9 * sold) << name;
  }
}

}  // namespace
}  // namespace fourfold::plan
