// Values of the command line that several commands read. Each refuses what it does not know and lists what it
// does.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernels/moe_layer/choose.h"
#include "plan/arch.h"

namespace fourfold::cli {

std::vector<std::string> split_commas(std::string_view text);

// As a shell takes it for one word: in quotes where it needs them.
std::string shell_word(std::string_view text);

// Why a text is no seed, or nothing. CLI11 reads numbers as C does, and would take another seed than was
// typed: of -1 and of what is beyond 64 bits the largest there is, of 010 eight.
std::string why_no_seed(const std::string& text);

std::vector<const plan::ArchFacts*> parse_archs(std::string_view text);
std::vector<int> parse_tokens(std::string_view text);  // "1,4,64"; zero is a token count too
// "1,8,64" or "0,1k,128k" (1k is 1,024), each from least to most.
std::vector<int> parse_counts(std::string_view text, std::string_view option, int least, int most);
moe_layer::Activations parse_activations(std::string_view text);
WeightFormat parse_format(std::string_view text);

// moe_layer::parse_shape and its checks, so that a bad shape fails before anything is allocated.
moe_layer::Shape parse_layer_shape(const std::string& text);

}  // namespace fourfold::cli
