#include "plan/explain.h"

#include <gtest/gtest.h>

#include <sstream>

#include "plan/text.h"
#include "tests/plan/sample_rows.h"

namespace fourfold::plan {
namespace {

constexpr int kTerminalColumns = 110;

// One string, whatever the line breaks: what is said does not depend on where it wraps.
std::string unwrapped(const std::string& text) {
  std::istringstream words(text);
  std::string out;
  for (std::string word; words >> word;) out += out.empty() ? word : " " + word;
  return out;
}

void expect_says(const std::string& page, const std::string& sentence) {
  EXPECT_NE(unwrapped(page).find(sentence), std::string::npos) << sentence << "\n---\n" << page;
}

void expect_fits_terminal(const std::string& page) {
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) EXPECT_LT(columns_of(line), kTerminalColumns) << line;
}

TEST(Explain, OurBytesPartByPartWithOffsets) {
  const std::string page = explain({256, 128, 128}, kSm120, {sample_prefill_row(), sample_decode_row()});
  EXPECT_NE(page.find("   A        0    55,296  weight records\n"
                      "   B   55,296    27,648  token records\n"
                      "   C   82,944        48  barriers\n"
                      "   D   82,992        80  padding\n"
                      "        total    83,072  of 101,376 bytes: 18,304 to spare\n"),
            std::string::npos)
      << page;
  EXPECT_EQ(page.find("decode_128x8x256"), std::string::npos);
  const std::string shared = explain({128, 8, 256}, kSm120, {sample_decode_row()});
  expect_says(shared, "total 41,344 of 50,176 bytes: 8,832 to spare");
  expect_says(shared, "50,176 bytes are the share of each of the 2 blocks that an SM holds.");
}

TEST(Explain, TheOverflowStepByStep) {
  const std::string page = explain({256, 128, 128}, kSm120, {sample_prefill_row()});
  expect_says(page, "one stage: A 16,384 + B 8,192 + scales 2,048 and 1,024 + barriers 128 = 27,776 bytes");
  expect_says(page,
              "101,376 - 128 for the scheduler - 256 for two tensor maps - 48 for their barriers = 100,944");
  expect_says(page, "less 17,408 for the epilogue = 83,536");
  expect_says(page, "depth: 83,536 / 27,776 = 3.007, so 3 stages");
  expect_says(page, "stages 82,944 + epilogue 16,896 = 99,840");
  expect_says(page, "their struct ends at 100,352");
  expect_says(page, "end at 100,736; the tensor maps, 896 bytes and not 256, at 101,632");
  expect_says(page, "to 102,400 bytes: over by 1,024 bytes");
  expect_says(page, "The content is 101,120 bytes and would fit with 256 to spare");
  expect_says(page, "aligned to 128 the same struct takes 101,376 bytes");
  EXPECT_NE(page.find("|X  102,400  over by 1,024\n"), std::string::npos);
  EXPECT_NE(page.find("18,304 to spare\n"), std::string::npos);
}

TEST(Explain, FoldingNamingAndTensorMaps) {
  const std::string page = explain({256, 128, 128}, kSm120, {});
  expect_says(page, "256x128x128 is \"256x128x64B\" there with FP4 activations");
  expect_says(page, "128 / 16 = 8 scales a row, 8 / 4 = 2 blocks of 4. A layout exists elsewhere.");
  expect_says(page, "plain 1-D bulk copies");
  expect_says(page, "No row of the table has this tile on this architecture.");
  const std::string short_page = explain({128, 128, 64}, kSm121, {});
  expect_says(short_page,
              "64 / 32 = 2 scales a row, 2 / 4 = 0 blocks of 4. An empty extent: no layout elsewhere.");
  expect_says(short_page, "min(2, 4) = 2");
  expect_says(short_page, "K = 64 is 1 record; every multiple of 64 has a form, 64 included.");
  expect_says(explain({128, 8, 2048}, kSm120, {}), "\"128x8x1024B\"");
}

TEST(Explain, TilesWithoutASuchKernelSayWhy) {
  expect_says(explain({64, 32, 64}, kSm120, {}), "There is no such kernel for 64x32x64");
  expect_says(explain({128, 128, 512}, kSm120, {}), "Fewer than two stages cannot overlap loads with math");
  expect_says(explain({128, 24, 128}, kSm120, {}), "128x24x128 is not among the tiles of this model");
  expect_says(explain({128, 128, 100}, kSm120, {}),
              "K = 100 is not a multiple of 64, so it has no form here.");
  expect_says(explain({256, 128, 128}, kSm90, {}),
              "exist for sm120 and sm121 alone. 3. The picture There is nothing to draw. 4. Scale factors");
  RowFacts here = sample_prefill_row();
  here.arch = "sm90";
  const std::string drawn = explain({256, 128, 128}, kSm90, {here});
  EXPECT_NE(drawn.find("3. The picture\n\nhere"), std::string::npos) << drawn;
}

TEST(Explain, SeveralRowsOfATileAreAllShown) {
  RowFacts other = sample_prefill_row();
  other.row = "prefill_256x128x128_w4a16";
  other.path = "w4a16-mma";
  const std::string page = explain({256, 128, 128}, kSm120, {sample_prefill_row(), other});
  expect_says(page, "here 1: moe_gemm, row prefill_256x128x128: w4a4");
  expect_says(page, "here 2: moe_gemm, row prefill_256x128x128_w4a16: w4a16-mma");
  EXPECT_NE(page.find("\nhere 2    "), std::string::npos);
}

TEST(Explain, EveryPageFitsATerminal) {
  const std::vector<RowFacts> rows{sample_prefill_row(), sample_decode_row()};
  for (int m : {32, 64, 128, 256}) {
    for (int n : {8, 24, 64, 128, 256}) {
      for (int k : {64, 128, 256, 512}) {
        expect_fits_terminal(explain({m, n, k}, kSm120, rows));
        expect_fits_terminal(explain({m, n, k}, kSm90, rows, {.width = 80, .utf8 = true}));
      }
    }
  }
}

TEST(Explain, PagesArePlainTextUnlessAskedOtherwise) {
  for (unsigned char letter : explain({256, 128, 128}, kSm120, {sample_prefill_row()})) {
    EXPECT_TRUE(letter == '\n' || (letter >= ' ' && letter < 0x7F));
  }
}

TEST(Explain, TheOverflowPictureStandsAlone) {
  const std::string picture = overflow_picture({.width = 90});
  EXPECT_NE(picture.find("3 stages by formula, 102,400 bytes by sizeof"), std::string::npos);
  EXPECT_NE(picture.find("|X  102,400  over by 1,024\n"), std::string::npos);
  EXPECT_NE(picture.find("101,376"), std::string::npos);
  expect_fits_terminal(picture);
  expect_fits_terminal(overflow_picture({.width = 60, .utf8 = true}));
}

}  // namespace
}  // namespace fourfold::plan
