// Runs a fuzz target without a fuzzer: over the files it is given, and over what is left of them after random
// damage. Every compiler builds it, so that the targets are exercised wherever the tests are.
//
//   replay_NAME [--rounds N] [--seed S] FILE...
//
// A target that aborts, throws or crashes is a failure; the line printed then repeats it.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/random.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using fourfold::Random;

constexpr std::size_t kInputBytesMax = 1 << 20;

char running[256] = "nothing yet";

void tell(int) {
  // Only what a signal handler may do.
  const char text[] = "the fuzz target failed on: ";
  [[maybe_unused]] auto ignored = write(2, text, sizeof text - 1);
  ignored = write(2, running, std::strlen(running));
  ignored = write(2, "\n", 1);
  _exit(1);
}

// Words that parsers trip over.
const char* const kWords[] = {"0",
                              "-1",
                              "2147483648",
                              "18446744073709551616",
                              "1e999",
                              "NaN",
                              "null",
                              "true",
                              "\"\"",
                              "[[[[",
                              "{{{{",
                              "{%",
                              "%}",
                              "\\u0000",
                              "\xff\xfe",
                              "\"dtype\"",
                              "..",
                              "/",
                              "{\"a\":1,\"a\":2}"};

std::string damaged(std::string text, const std::vector<std::string>& others, Random& random) {
  const auto place = [&] { return static_cast<std::size_t>(random.below(text.size() + 1)); };
  const std::uint64_t steps = 1 + random.below(4);
  for (std::uint64_t step = 0; step < steps; ++step) {
    const std::size_t at = place();
    switch (random.below(8)) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << random.below(8)));
        break;
      case 1:
        if (at < text.size()) text[at] = static_cast<char>(random.bits());
        break;
      case 2: text.resize(at); break;
      case 3: text.erase(at, random.below(64)); break;
      case 4: text.insert(at, kWords[random.below(std::size(kWords))]); break;
      case 5: text.insert(at, text.substr(place(), random.below(256))); break;
      case 6: {  // a number becomes another
        const auto digit = text.find_first_of("0123456789", at);
        if (digit != std::string::npos) text.replace(digit, 1, kWords[random.below(6)]);
        break;
      }
      default: {
        const std::string& other = others[random.below(others.size())];
        const auto from = static_cast<std::size_t>(random.below(other.size() + 1));
        text.insert(at, other.substr(from, random.below(512)));
      }
    }
  }
  if (random.below(200) == 0) text.insert(place(), std::string(5000, "[{(\"'"[random.below(5)]));
  text.resize(std::min(text.size(), kInputBytesMax));
  return text;
}

void run(const std::string& input) {
  // A copy of exactly this size, so that a sanitizer sees reads behind its end.
  const std::vector<std::uint8_t> bytes(input.begin(), input.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

}  // namespace

int main(int count, char** words) {
  std::uint64_t rounds = 2000, seed = 1;
  std::vector<std::string> names, inputs;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    if ((word == "--rounds" || word == "--seed") && i + 1 < count) {
      (word == "--rounds" ? rounds : seed) = std::strtoull(words[++i], nullptr, 10);
      continue;
    }
    std::ifstream file(word, std::ios::binary);
    if (!file) {
      std::fprintf(stderr, "%s cannot be read\n", word.c_str());
      return 2;
    }
    names.push_back(word);
    inputs.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  if (inputs.empty()) {
    std::fprintf(stderr, "no files given\n");
    return 2;
  }
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) std::signal(signal, tell);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    std::snprintf(running, sizeof running, "%s", names[i].c_str());
    run(inputs[i]);
  }
  run({});
  for (std::uint64_t round = 0; round < rounds; ++round) {
    Random random(seed + round);
    const std::size_t chosen = random.below(inputs.size());
    std::snprintf(running, sizeof running, "%s, --rounds 1 --seed %llu", names[chosen].c_str(),
                  static_cast<unsigned long long>(seed + round));
    run(damaged(inputs[chosen], inputs, random));
  }
  std::printf("%zu files and %llu damaged ones, seeds from %llu: nothing broke\n", inputs.size(),
              static_cast<unsigned long long>(rounds), static_cast<unsigned long long>(seed));
  return 0;
}
