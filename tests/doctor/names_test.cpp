// What is taken out of texts that people send, and what must stay in them.
#include "doctor/names.h"

#include <gtest/gtest.h>

namespace fourfold::doctor {
namespace {

TEST(Names, WhatPointsToSomebodyIsTakenOut) {
  const Names names{"beast.lan", "anna", {"/data/anna", "/root"}, {"s3cret-of-mine"}};
  const auto without = [&](const char* text) { return without_names(text, names); };
  EXPECT_EQ(without("beast.lan, Beast, BEAST.LAN, beasts"), "host, host, host, beasts");
  EXPECT_EQ(without("/data/anna/x /home/berta/y /Users/carl"), "/home/user/x /home/user/y /Users/user");
  EXPECT_EQ(without("/root/x, chroot /srv/root"), "/home/user/x, chroot /srv/root");
  EXPECT_EQ(without("link d8-5e-d3-01-ab-cd"), "link 00-00-00-00-00-00");
  EXPECT_EQ(without("key=s3cret-of-minefield"), "key=(secret)field");
  EXPECT_EQ(without("hf_QqRrSsTtUuVvWwXxYyZz sk-short Authorization: Bearer abcdefgh12"),
            "hf_(secret) sk-short Authorization: Bearer (secret)");
  EXPECT_EQ(without("CUDA_VISIBLE_DEVICES=GPU-1a2b3c4d GPU-bound"),
            "CUDA_VISIBLE_DEVICES=GPU-00000000 GPU-bound");
  EXPECT_EQ(without("Serial Number : 1320123456789"), "Serial Number : 0000000000000");
  EXPECT_EQ(without("serial=ABC-12345 serialno: 7654321"), "serial=000000000 serialno: 0000000");
  EXPECT_EQ(without("http://192.168.17.23:8000 at 10.0.0.7."), "http://0.0.0.0:8000 at 0.0.0.0.");
  EXPECT_EQ(without("machine_id=4f0c2a9e8b7d6c5a4f0c2a9e8b7d6c5a,"),
            "machine_id=00000000000000000000000000000000,");
  EXPECT_EQ(without("fe80::1ff:fe23:4567:890a/64"), "::/64");
}

// Versions, buses, times, rows and flags look like addresses and serials from afar.
TEST(Names, WhatIsNobodysStays) {
  const Names names{"beast", "anna", {"/data/anna"}, {}};
  for (const char* text :
       {"driver 580.95.05, VBIOS 96.00.99.00.01", "0000:3b:00.0 at 08:44:29", "127.0.0.1:8000 0.0.0.0 ::1",
        "std::string fp8::e4m3", "0::/ 11:pids:/", "commit 99c5cadb5d2f0e3c1a7b9e8d6f4a2c0b1e3d5f70",
        "fsrm md_clear serialize tsxldtrk avx512fp16", "serial code: none",
        "moe_stream 64x128x128 w4a4, 3 of 128 tokens", "GPU-Util 7 %"})
    EXPECT_EQ(without_names(text, names), text);
}

// The same device has the same number in all its spellings, and another device another one.
TEST(Names, PciAddressesAreNumbered) {
  EXPECT_EQ(
      with_numbered_pci("nvml 0 pci = 0000:3b:00.0\nfile /sys/bus/pci/devices/0000:3b:00.0/numa_node = 0\n"
                        "bridges 0000:3b:00.0 = 0000:3a:01.0 0000:3a:02.0\n"),
      "nvml 0 pci = pci-1\nfile /sys/bus/pci/devices/pci-1/numa_node = 0\nbridges pci-1 = pci-2 pci-3\n");
  EXPECT_EQ(with_numbered_pci("00000000:3B:00.0 0000:3b:00.0 3b:00.0, Xid (PCI:0000:3b:00): 79; af:1f.7"),
            "pci-1 pci-1 pci-1, Xid (PCI:pci-1): 79; pci-2");
  // Beside numbers that are there, as in a report with a recording in it.
  EXPECT_EQ(with_numbered_pci("pci-1 pci-12 0000:01:00.0"), "pci-1 pci-12 pci-13");
  for (const char* text : {"08:44:29", "2026-11-17T08:01:50Z", "[3b:20.0]", "3b:00", "3b:00.8", "a:3b:00.0",
                           "0000:3b:00:11", "12.0 3:00.0", "driver 580.95.05", "0x2b85", ""})
    EXPECT_EQ(with_numbered_pci(text), text);
}

}  // namespace
}  // namespace fourfold::doctor
