#include "checkpoint/safetensors.h"

#include <cstdlib>

#include "tests/checkpoint/support.h"

namespace fourfold::checkpoint {
namespace {

SafetensorsHeader parse(std::string_view file) {
  return parse_safetensors_header(std::as_bytes(std::span(file)), file.size(), "model.safetensors");
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets +
         "}";
}

TEST(Safetensors, ReadsTensorsInTheOrderOfTheirBytes) {
  const std::string header = "{" + entry("b", "F32", "[1]", "[8,12]") + "," +
                             entry("a", "BF16", "[2,2]", "[0,8]") + R"(,"__metadata__":{"format":"pt"},)" +
                             entry("empty", "F32", "[0,7]", "[8,8]") + "," +
                             entry("scalar", "F8_E4M3", "[]", "[12,13]") + "}   ";
  const SafetensorsHeader result = parse(safetensors_file(header, std::string(13, 'x')));
  ASSERT_EQ(result.tensors.size(), 4u);
  EXPECT_EQ(result.data_begin, 8 + header.size());
  EXPECT_EQ(result.tensors[0].name, "a");
  EXPECT_EQ(result.tensors[0].shape, (Shape{2, 2}));
  EXPECT_EQ(result.tensors[1].name, "empty");
  EXPECT_EQ(result.tensors[2].name, "b");
  EXPECT_EQ(result.tensors[3].shape.rank(), 0);
}

TEST(Safetensors, AnEmptyFileOfNoTensorsIsAFile) {
  EXPECT_TRUE(parse(safetensors_file("{}", "")).tensors.empty());
}

struct Malformed {
  const char* name;
  std::string header;
  std::size_t data_bytes;
  std::string message;
};

std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return "{" + entry("t", dtype, shape, offsets) + "}";
}

std::string object_bomb() {
  std::string text;
  for (int i = 0; i < 50'000; ++i) text += "{\"a\":";
  return text;
}

std::vector<Malformed> malformed_headers() {
  return {
      {"shape needs more bytes", one("F32", "[2]", "[0,4]"), 4,
       "tensor t of F32 [2] needs 8 bytes; its offsets 0..4 give 4"},
      {"shape needs fewer bytes", one("U8", "[2]", "[0,4]"), 4, "needs 2 bytes"},
      {"data truncated", one("F32", "[2]", "[0,8]"), 7, "need 8 bytes after the header; the file has 7"},
      {"bytes after the last tensor", one("F32", "[1]", "[0,4]"), 5, "1 bytes after the last tensor"},
      {"gap at the front", one("F32", "[1]", "[4,8]"), 8, "4 bytes between the header and tensor t"},
      {"gap", "{" + entry("a", "U8", "[1]", "[0,1]") + "," + entry("b", "U8", "[1]", "[2,3]") + "}", 3,
       "1 bytes between a and tensor b belong to no tensor"},
      {"overlap", "{" + entry("a", "U8", "[4]", "[0,4]") + "," + entry("b", "U8", "[4]", "[3,7]") + "}", 7,
       "tensor b begins at 3 inside a, which ends at 4"},
      {"the same bytes twice",
       "{" + entry("a", "U8", "[4]", "[0,4]") + "," + entry("b", "U8", "[4]", "[0,4]") + "}", 4,
       "tensor b begins at 0 inside a"},
      {"duplicate tensor",
       "{" + entry("a", "U8", "[1]", "[0,1]") + "," + entry("a", "U8", "[1]", "[1,2]") + "}", 2,
       "has tensor a twice"},
      {"duplicate field", R"({"t":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}})", 0,
       "has the field \"dtype\" twice"},
      {"metadata twice", R"({"__metadata__":{},"__metadata__":{}})", 0, "__metadata__\" twice"},
      {"end before begin", one("U8", "[0]", "[4,0]"), 4, "begins at 4 and ends before it at 0"},
      {"negative size", one("U8", "[-1]", "[0,0]"), 0, "negative size -1"},
      {"negative offset", one("U8", "[1]", "[-1,0]"), 0, "negative data offset -1"},
      {"huge offset", one("U8", "[1]", "[0,18446744073709551615]"), 0,
       "18446744073709551615, which is beyond any file"},
      {"larger than 64 bits", one("U8", "[1]", "[0,99999999999999999999999]"), 0, "whole and below 2^63"},
      {"fraction", one("U8", "[1.5]", "[0,1]"), 1, "the number 1.5"},
      {"exponent", one("U8", "[1e400]", "[0,1]"), 1, "whole and below 2^63"},
      {"NaN", one("U8", "[NaN]", "[0,1]"), 1, "not valid JSON"},
      {"size times size overflows", one("F32", "[4294967296,4294967296]", "[0,0]"), 0,
       "more bytes than 64 bits"},
      {"bits overflow", one("F64", "[9223372036854775807]", "[0,8]"), 8, "more bytes than 64 bits"},
      {"half a byte", one("F4", "[3]", "[0,2]"), 2, "12 bits, which is no whole number of bytes"},
      {"unknown type", one("Q4_K", "[1]", "[0,1]"), 1, "unknown element type \"Q4_K\""},
      {"type in lower case", one("bf16", "[1]", "[0,2]"), 2, "unknown element type"},
      {"too many dimensions", one("U8", "[1,1,1,1,1,1,1]", "[0,1]"), 1, "more than 6 dimensions"},
      {"one offset", one("U8", "[1]", "[0]"), 1, "has 1 data_offsets"},
      {"three offsets", one("U8", "[1]", "[0,1,1]"), 1, "has 3 data_offsets"},
      {"no dtype", R"({"t":{"shape":[0],"data_offsets":[0,0]}})", 0, "lacks the field \"dtype\""},
      {"no shape", R"({"t":{"dtype":"U8","data_offsets":[0,0]}})", 0, "lacks the field \"shape\""},
      {"no offsets", R"({"t":{"dtype":"U8","shape":[0]}})", 0, "lacks the field \"data_offsets\""},
      {"unknown field", R"({"t":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":1}})", 0,
       "unknown field \"x\""},
      {"tensor is a number", R"({"t":1})", 0, "a number where \"t\""},
      {"tensor is an array", R"({"t":[]})", 0, "an array where \"t\""},
      {"tensor is null", R"({"t":null})", 0, "null where \"t\""},
      {"dtype is a number", R"({"t":{"dtype":7,"shape":[0],"data_offsets":[0,0]}})", 0,
       "a number where \"dtype\""},
      {"shape is a string", R"({"t":{"dtype":"U8","shape":"1","data_offsets":[0,0]}})", 0,
       "a string where \"shape\""},
      {"a string in the shape", R"({"t":{"dtype":"U8","shape":["1"],"data_offsets":[0,0]}})", 0,
       "a string where"},
      {"nested shape", one("U8", "[[1]]", "[0,1]"), 1, "an array where \"shape\""},
      {"true in the offsets", one("U8", "[1]", "[true,1]"), 1, "a truth value where"},
      {"metadata of numbers", R"({"__metadata__":{"a":1}})", 0, "a number where \"a\""},
      {"metadata of objects", R"({"__metadata__":{"a":{}}})", 0, "an object where \"a\""},
      {"depth bomb", "{\"t\":{\"shape\":" + std::string(100'000, '['), 0, "an array where"},
      {"object bomb", object_bomb(), 0, "unknown field \"a\""},
      {"unfinished", R"({"t":{"dtype":"U8")", 0, "not valid JSON"},
      {"text after the header", "{} x", 0, "text after its JSON object, at byte 3"},
      {"two documents", "{}{}", 0, "text after its JSON object"},
      {"an array", "[]", 0, "does not begin with '{'"},
      {"no header", "", 0, "does not begin with '{'"},
      {"name not UTF-8", "{\"\xFF\":{}}", 0, "not valid JSON"},
      {"name too long", "{\"" + std::string(5000, 'a') + "\":{}}", 0, "not valid JSON"},
  };
}

TEST(Safetensors, RefusesMalformedHeaders) {
  for (const Malformed& file : malformed_headers()) {
    SCOPED_TRACE(file.name);
    expect_error(Code::bad_checkpoint, {file.message, "model.safetensors"},
                 [&] { parse(safetensors_file(file.header, std::string(file.data_bytes, 'x'))); });
  }
}

TEST(Safetensors, RefusesWrongHeaderLengths) {
  const std::string file = safetensors_file(one("U8", "[4]", "[0,4]"), "data");
  // Every truncation of a file is an error, never a view beyond its end.
  for (std::size_t size = 0; size < file.size(); ++size) {
    SCOPED_TRACE(size);
    expect_error(Code::bad_checkpoint, {}, [&] { parse(std::string_view(file).substr(0, size)); });
  }
  std::string longer = file;
  longer[2] = 1;  // the header claims 65,536 bytes more
  expect_error(Code::bad_checkpoint, {"bytes; only"}, [&] { parse(longer); });
  std::string huge = file;
  huge[7] = '\x7F';
  expect_error(Code::bad_checkpoint, {"the limit of the format is 100000000"}, [&] { parse(huge); });
  std::string wraps = file;
  for (int i = 0; i < 8; ++i) wraps[static_cast<std::size_t>(i)] = '\xFF';
  expect_error(Code::bad_checkpoint, {"18446744073709551615"}, [&] { parse(wraps); });
}

TEST(Safetensors, EveryDamagedHeaderIsRefusedOrSound) {
  const std::string good = safetensors_file(
      {random_bf16("a.weight", {3, 4}), random_bf16("b", {2}), {"c", "F32", {}, std::string(4, '\0')}});
  const SafetensorsHeader header = parse(good);
  Random random(20'261);
  int accepted = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string file = good;
    const auto hits = 1 + random.below(3);
    for (std::uint64_t i = 0; i < hits; ++i)
      file[random.below(header.data_begin)] = static_cast<char>(random.bits());
    try {
      const SafetensorsHeader result = parse(file);
      ++accepted;
      for (const TensorEntry& tensor : result.tensors) {
        ASSERT_LE(tensor.begin, tensor.end);
        ASSERT_LE(result.data_begin + tensor.end, file.size());
      }
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), Code::bad_checkpoint);
    }
  }
  EXPECT_GT(accepted, 0) << "no damage left a readable header, so the sound branch was never tried";
}

TEST(SafetensorsFile, GivesViews) {
  TempFolder folder;
  const auto path =
      folder.write("a.safetensors", safetensors_file({random_bf16("a", {2, 3}), random_bf16("b", {1})}));
  const SafetensorsFile file(path);
  const TensorView view = file.required("a");
  EXPECT_EQ(view.dtype, DType::bf16);
  EXPECT_EQ(describe(view), "BF16 [2, 3]");
  std::string copy(view.bytes.size(), '\0');
  file.read(view.bytes, std::as_writable_bytes(std::span(copy)));
  EXPECT_EQ(copy, random_bf16("a", {2, 3}).bytes);
  EXPECT_EQ(elements<Bf16>(view).size(), 6u);
  expect_error(Code::bad_checkpoint, {"there is no tensor c"}, [&] { file.required("c"); });
}

TEST(SafetensorsFile, RefusesTypedAccessToOddPlaces) {
  TempFolder folder;
  const auto path =
      folder.write("a.safetensors", safetensors_file({{"a", "U8", {1}, "x"}, random_bf16("b", {1})}));
  const SafetensorsFile file(path);
  expect_error(Code::bad_checkpoint, {"tensor b (BF16 [1]) does not start at a multiple of 2"},
               [&] { elements<Bf16>(file.required("b")); });
}

TEST(SafetensorsFile, RefusesWhatIsNoFile) {
  TempFolder folder;
  expect_error(Code::io, {"cannot be opened"},
               [&] { SafetensorsFile(folder.path() / "absent.safetensors"); });
  expect_error(Code::io, {"is not a regular file"}, [&] { SafetensorsFile{folder.path()}; });
  expect_error(Code::bad_checkpoint, {"0 bytes"},
               [&] { SafetensorsFile(folder.write("empty.safetensors", "")); });
  std::filesystem::create_symlink("loop.safetensors", folder.path() / "loop.safetensors");
  expect_error(Code::io, {"cannot be opened"}, [&] { SafetensorsFile(folder.path() / "loop.safetensors"); });
}

}  // namespace
}  // namespace fourfold::checkpoint
