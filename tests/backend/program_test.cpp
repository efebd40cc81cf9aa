#include "backend/program.h"

#include "tests/backend/support.h"

namespace fourfold::backend {
namespace {

TEST(ProgramText, IsOneOpALine) {
  const SmallModel model;
  EXPECT_EQ(to_text(model.program, Pass::main),
            "x = embed(table=table)\n"
            "keep_hidden(in=x)\n"
            "asked = take_logits_rows(in=x)\n"
            "logits = linear(in=asked, weight=head)\n");
  EXPECT_EQ(to_text(model.program, Pass::draft), "");
}

}  // namespace
}  // namespace fourfold::backend
