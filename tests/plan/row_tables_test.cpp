#include "plan/row_tables.h"

#include <gtest/gtest.h>

#include <sstream>

#include "plan/text.h"
#include "tests/plan/sample_rows.h"

namespace fourfold::plan {
namespace {

void expect_page_width(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(columns_of(line), kPageColumns) << line;
}

TEST(RowTables, TextShowsEveryByteOfEveryRow) {
  const std::string text = table_text({sample_prefill_row()}, {sample_refused_shape()});
  EXPECT_EQ(text,
            "moe_gemm on sm120\n"
            "  row                  stages    total    limit    slack  regs  blocks  aliased\n"
            "  prefill_256x128x128       3   83,072  101,376   18,304   168       1  yes\n"
            "      256x128x128 w4a4 nvfp4 prefill, 288 threads (8 math + 1 producer warps): weight records "
            "55,296 + "
            "token\n"
            "      records 27,648 + barriers 48 + padding 80\n"
            "\n"
            "refused shapes, with the bytes they would need:\n"
            "  - moe_gemm 256x256x512 w4a4 nvfp4 on sm120: needs 147,584 bytes of 101,376, 46,208 too many: "
            "two stages do\n"
            "    not fit\n");
}

TEST(RowTables, RowsAreGroupedByKernelAndArchitecture) {
  RowFacts hopper = sample_prefill_row();
  hopper.arch = "sm90";
  hopper.limit_bytes = Sm90::smem_bytes_per_block;
  const std::string text = table_text({sample_prefill_row(), sample_decode_row(), hopper}, {});
  EXPECT_EQ(text.find("moe_gemm on sm120\n"), 0u);
  EXPECT_EQ(text.find("moe_gemm on sm120\n", 1), std::string::npos);  // one heading for both limits
  EXPECT_NE(text.find("\n\nmoe_gemm on sm90\n"), std::string::npos);
  EXPECT_NE(text.find("41,344   50,176    8,832   168       2  no\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("refused"), std::string::npos);
}

TEST(RowTables, LongNamesAndReasonsKeepThePageWidth) {
  RowFacts row = sample_prefill_row();
  row.row = "moe_gemm_256x128x128_w4a16-wgmma_nvfp4";
  RefusedShape shape = sample_refused_shape();
  for (int index = 0; index < 30; ++index) shape.reason += " and again";
  expect_page_width(table_text({row, sample_decode_row()}, {shape}));
}

TEST(RowTables, AShapeRefusedForAnotherReasonIsNotSaidToOverflow) {
  RefusedShape shape = sample_refused_shape();
  shape.needs_bytes = 1'000;
  shape.reason = "K is not a multiple of 64";
  const std::string text = table_text({}, {shape});
  EXPECT_NE(text.find("needs 1,000 bytes of 101,376: K is not a multiple of 64"), std::string::npos);
}

TEST(RowTables, JsonCarriesTheKeysProgramsRead) {
  RowFacts row = sample_prefill_row();
  row.parts = {{"a \"quoted\" part", row.total_bytes}};
  const std::string json = table_json({row}, {sample_refused_shape()}, Sm120::smem_bytes_per_block);
  for (const char* expected :
       {"\"limit_bytes\": 101376", "\"kernel\": \"moe_gemm\"", "\"tile\": \"256x128x128\"",
        "\"total_bytes\": 83072", "\"slack_bytes\": 18304", "\"stages\": 3", "\"registers\": 168",
        "\"blocks_per_sm\": 1", "\"epilogue_aliases_stages\": true", "\"name\": \"a \\\"quoted\\\" part\"",
        "\"tile\": \"256x256x512\"", "\"needs_bytes\": 147584", "\"reason\": \"two stages do not fit\""}) {
    EXPECT_NE(json.find(expected), std::string::npos) << expected;
  }
}

TEST(RowTables, NoRowsIsSaid) {
  EXPECT_EQ(table_text({}, {}), "no rows\n");
  EXPECT_NE(table_json({}, {}, 5).find("\"rows\": []"), std::string::npos);
}

}  // namespace
}  // namespace fourfold::plan
