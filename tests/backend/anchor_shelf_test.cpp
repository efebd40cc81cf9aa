#include "backend/anchor_shelf.h"

#include "tests/backend/support.h"

namespace fourfold::backend {
namespace {

TEST(AnchorShelf, GivesBackWhatWasPutThereForThatPositionAlone) {
  AnchorShelf shelf;
  shelf.resize(2);
  shelf.put(1, 128, 3)[2] = 7;
  EXPECT_EQ(shelf.get(1, 128)[2], 7);
  expect_refused({"anchor 1", "128", "64"}, [&] { shelf.get(1, 64); });
  expect_refused({"anchor 0", "0", "128"}, [&] { shelf.get(0, 128); });
  expect_refused({"anchor 2", "room for 2"}, [&] { shelf.put(2, 64, 1); });
  expect_refused({"anchor -1"}, [&] { shelf.get(-1, 64); });
}

}  // namespace
}  // namespace fourfold::backend
