// What is taken out of texts that people send, and what must stay in them.
#include "doctor/names.h"

#include <gtest/gtest.h>

namespace fourfold::doctor {
namespace {

TEST(Names, WhatPointsToSomebodyIsTakenOut) {
  const Names names{"beast.lan", "anna", "/data/anna", {"s3cret-of-mine"}};
  const auto without = [&](const char* text) { return without_names(text, names); };
  EXPECT_EQ(without("beast.lan, beast, beasts"), "host, host, beasts");
  EXPECT_EQ(without("/data/anna/x /home/berta/y /Users/carl"), "/home/user/x /home/user/y /Users/user");
  EXPECT_EQ(without("key=s3cret-of-minefield"), "key=(secret)field");
  EXPECT_EQ(without("hf_QqRrSsTtUuVvWwXxYyZz sk-short Authorization: Bearer abcdefgh12"),
            "hf_(secret) sk-short Authorization: Bearer (secret)");
  EXPECT_EQ(without("CUDA_VISIBLE_DEVICES=GPU-1a2b3c4d GPU-bound"),
            "CUDA_VISIBLE_DEVICES=GPU-00000000 GPU-bound");
  EXPECT_EQ(without("Serial Number : 1320123456789"), "Serial Number : 0000000000000");
  EXPECT_EQ(without("serial=ABC-12345 serialno: 7654321"), "serial=000000000 serialno: 0000000");
  EXPECT_EQ(without("http://192.168.17.23:8000 at 10.0.0.7."), "http://0.0.0.0:8000 at 0.0.0.0.");
  EXPECT_EQ(without("fe80::1ff:fe23:4567:890a/64"), "::/64");
}

// Versions, buses, times, rows and flags look like addresses and serials from afar.
TEST(Names, WhatIsNobodysStays) {
  const Names names{"beast", "anna", "/data/anna", {}};
  for (const char* text :
       {"driver 580.95.05, VBIOS 96.00.99.00.01", "0000:3b:00.0 at 08:44:29", "127.0.0.1:8000 0.0.0.0 ::1",
        "std::string fp8::e4m3", "fsrm md_clear serialize tsxldtrk avx512fp16", "serial code: none",
        "moe_stream 64x128x128 w4a4, 3 of 128 tokens", "GPU-Util 7 %"})
    EXPECT_EQ(without_names(text, names), text);
}

}  // namespace
}  // namespace fourfold::doctor
