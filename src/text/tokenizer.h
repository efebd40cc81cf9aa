// Text to token ids and back, for the byte-level BPE tokenizers of tokenizer.json files. Ids are exactly
// those of the `tokenizers` package; what it could do but we cannot is refused when the file is read, never
// approximated. A loaded Tokenizer is read only: any number of threads may use it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/pre_tokenizer.h"
#include "text/traced_text.h"

namespace fourfold::text {

struct EncodeOptions {
  // The tokens the file puts around every text (Llama's <|begin_of_text|>). A chat template writes its own.
  bool add_special_tokens = false;
  // "<|im_start|>" in the text stays six ordinary characters and more: for text from outside that must not
  // forge turns. Tokens not marked special (<think>, <tool_call>) are found all the same.
  bool special_as_text = false;
};

struct DecodeOptions {
  bool skip_special = false;
};

class Tokenizer {
 public:
  // Throws io or bad_checkpoint; the message names the file and the member that is wrong.
  static Tokenizer load(const std::filesystem::path& tokenizer_json);
  static Tokenizer parse(std::string_view json, std::string_view name);

  // Invalid UTF-8 counts as U+FFFD, once for each longest broken part. Throws invalid_request above 1 GiB of
  // text.
  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options = {}) const;

  // Special tokens are found in the text's own bytes only, whole; elsewhere they are the characters they are.
  std::vector<TokenId> encode(const TracedText& text) const;
  // Text of more bytes than this has more than `token_count` tokens, whatever it says.
  std::size_t bytes_max(std::int64_t token_count) const;

  // Always valid UTF-8: bytes that are not become U+FFFD. Ids without a token give nothing.
  std::string decode(std::span<const TokenId> ids, const DecodeOptions& options = {}) const;

  // The bytes an id stands for, which may be a part of a character; empty for ids without a token.
  std::string_view token_bytes(TokenId id) const;
  bool is_special(TokenId id) const;
  // The id of an added token by its text ("<|im_end|>").
  std::optional<TokenId> added_token(std::string_view content) const;
  // One more than the largest id. The model's vocabulary may be padded beyond it.
  TokenId id_limit() const { return static_cast<TokenId>(tokens_.size()); }
  bool normalises() const { return nfc_; }

 private:
  friend class TokenizerReader;
  Tokenizer();

  void encode_valid(std::string_view text, const SpecialPlaces& special, std::vector<TokenId>& out) const;
  void encode_pieces(std::string_view text, std::vector<TokenId>& out) const;

  struct Token {
    std::string bytes;
    bool special = false;
  };
  std::uint64_t serial_;  // tells the thread's piece cache whose pieces it holds
  bool nfc_ = false;
  PreTokenizer pre_tokenizer_;
  BpeModel bpe_;
  std::vector<Token> tokens_;  // by id
  std::vector<AddedToken> added_tokens_;
  AddedTokenFinder raw_finder_;         // in the text as given
  AddedTokenFinder normalized_finder_;  // in normalised text
  bool normalized_special_ = false;     // whether one of those is special
  std::vector<TokenId> before_, after_;
};

}  // namespace fourfold::text
