// The engine as a C++ library: two threads ask one model, whose steps they share.
//   tell MODEL_FOLDER
#include <fourfold/engine.h>

#include <cstdio>
#include <thread>

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s MODEL_FOLDER\n", argv[0]);
    return 2;
  }
  const fourfold::library::Model model(argv[1], {.max_context = 512, .max_sequences = 2});
  fourfold::library::GenerateOptions options;
  options.max_tokens = 24;
  options.temperature = 0;
  fourfold::library::Result other;
  std::thread helper([&] { other = model.generate("Once upon a time", options); });
  const auto answer = model.generate("Once upon a time", options, [](std::string_view piece) {
    std::fwrite(piece.data(), 1, piece.size(), stdout);
    return true;
  });
  helper.join();
  std::printf("\n%lld tokens after a prompt of %lld\n", static_cast<long long>(answer.answer_tokens),
              static_cast<long long>(answer.prompt_tokens));
  if (answer.text != other.text) {
    std::fprintf(stderr, "the two answers differ\n");
    return 1;
  }
  std::puts("ok");
} catch (const fourfold::library::Failure& failure) {
  std::fprintf(stderr, "%s: %s %s\n", failure.code().c_str(), failure.what(), failure.hint().c_str());
  return 1;
}
