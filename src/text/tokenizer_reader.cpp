// Reads tokenizer.json into a Tokenizer. Everything that would change an id is understood or refused; the
// message names the member.
#include <boost/json.hpp>
#include <functional>
#include <limits>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "base/seeded_hash.h"
#include "base/utf8.h"
#include "json/parse.h"
#include "text/nfc.h"
#include "text/tokenizer.h"

namespace fourfold::text {

namespace {

using boost::json::array;
using boost::json::object;
using boost::json::value;

constexpr std::size_t kFileBytesMax = std::size_t{256} << 20;
constexpr std::size_t kDepthMax = 16;
constexpr std::int64_t kIdLimitMax = 1 << 20;
constexpr std::string_view kGpt2Expression =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// GPT-2 writes each byte as a printable character; this is the way back, -1 for characters that are no byte.
constexpr int byte_of_character(char32_t code) {
  const auto is_itself = [](int b) {
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
  };
  if (code < 256) return is_itself(static_cast<int>(code)) ? static_cast<int>(code) : -1;
  int shifted = 256;
  for (int byte = 0; byte < 256; ++byte) {
    if (!is_itself(byte) && static_cast<char32_t>(shifted++) == code) return byte;
  }
  return -1;
}

class ByteAlphabet {
 public:
  ByteAlphabet() {
    for (char32_t code = 0; code < kLimit; ++code)
      byte_[code] = static_cast<std::int16_t>(byte_of_character(code));
  }
  // The bytes a token's characters stand for; a token with any other character is its own text.
  std::string bytes_of(std::string_view written, bool* all_bytes = nullptr) const {
    std::string out;
    for (std::size_t at = 0; at < written.size();) {
      const CodePoint point = read_code_point(written.data() + at);
      const int byte = point.code < kLimit ? byte_[point.code] : -1;
      if (all_bytes != nullptr) *all_bytes = byte >= 0;
      if (byte < 0) return std::string(written);
      out += static_cast<char>(byte);
      at += static_cast<std::size_t>(point.bytes);
    }
    return out;
  }

 private:
  static constexpr char32_t kLimit = 256 + 68;
  std::int16_t byte_[kLimit];
};

std::string_view view(const boost::json::string& text) { return {text.data(), text.size()}; }

}  // namespace

class TokenizerReader {
 public:
  explicit TokenizerReader(std::string_view name) : name_(name) {}

  Tokenizer read(const value& document) {
    const object& root = as_object(document, "the document");
    read_normalizer(root.if_contains("normalizer"), "normalizer");
    read_pre_tokenizer(root.if_contains("pre_tokenizer"), "pre_tokenizer");
    if (!byte_level_) refuse("pre_tokenizer", "has no ByteLevel step; only byte-level BPE is supported");
    const std::string decoder = type_of(member(root, "decoder", "decoder"), "decoder");
    if (decoder != "ByteLevel") refuse("decoder", format("is {}; only ByteLevel is supported", decoder));
    // Truncation and padding are for training batches: a prompt is served whole or refused by its length.
    const object& model = as_object(member(root, "model", "model"), "model");
    read_model(model);
    read_added_tokens(root.if_contains("added_tokens"));
    drop_special_pieces();
    read_merges(as_array(member(model, "merges", "model.merges"), "model.merges"));
    read_post_processor(root.if_contains("post_processor"), "post_processor");
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(std::string_view where, std::string_view what) const {
    fail(Code::bad_checkpoint, "{}: {} {}", name_, where, what);
  }
  const object& as_object(const value& item, std::string_view where) const {
    if (!item.is_object()) refuse(where, "is not an object");
    return item.get_object();
  }
  const array& as_array(const value& item, std::string_view where) const {
    if (!item.is_array()) refuse(where, "is not an array");
    return item.get_array();
  }
  std::string_view as_string(const value& item, std::string_view where) const {
    if (!item.is_string()) refuse(where, "is not a string");
    return view(item.get_string());
  }
  const value& member(const object& parent, std::string_view key, std::string_view where) const {
    const value* found = parent.if_contains(key);
    if (found == nullptr) refuse(where, "is missing");
    return *found;
  }
  std::string type_of(const value& item, std::string_view where) const {
    return std::string(as_string(member(as_object(item, where), "type", format("{}.type", where)),
                                 format("{}.type", where)));
  }
  bool flag(const object& parent, std::string_view key, bool otherwise, std::string_view where) const {
    const value* found = parent.if_contains(key);
    if (found == nullptr) return otherwise;
    if (!found->is_bool()) refuse(format("{}.{}", where, key), "is not true or false");
    return found->get_bool();
  }
  TokenId as_id(const value& item, std::string_view where) const {
    if (!item.is_int64()) refuse(where, "is not an integer");
    const std::int64_t id = item.get_int64();
    if (id < 0 || id >= kIdLimitMax) refuse(where, format("is {}; ids go from 0 to {}", id, kIdLimitMax - 1));
    return static_cast<TokenId>(id);
  }

  void read_normalizer(const value* item, const std::string& where) {
    if (item == nullptr || item->is_null()) return;
    const std::string type = type_of(*item, where);
    if (type == "NFC") {
      out_.nfc_ = true;
    } else if (type == "Sequence") {
      std::size_t i = 0;
      for (const value& step :
           as_array(member(item->get_object(), "normalizers", where + ".normalizers"), where)) {
        read_normalizer(&step, format("{}[{}]", where, i++));
      }
    } else {
      refuse(where, format("is {}; supported are NFC and none", type));
    }
  }

  void read_pre_tokenizer(const value* item, const std::string& where) {
    if (item == nullptr || item->is_null()) return;
    if (byte_level_) refuse(where, "stands behind ByteLevel, which must be the last step");
    const std::string type = type_of(*item, where);
    const object& step = item->get_object();
    if (type == "Sequence") {
      std::size_t i = 0;
      for (const value& inner : as_array(member(step, "pretokenizers", where + ".pretokenizers"), where)) {
        read_pre_tokenizer(&inner, format("{}[{}]", where, i++));
      }
    } else if (type == "ByteLevel") {
      if (flag(step, "add_prefix_space", true, where))
        refuse(where, "has add_prefix_space, which is not supported");
      if (flag(step, "use_regex", true, where)) out_.pre_tokenizer_.add(*known_split_rule(kGpt2Expression));
      byte_level_ = true;
    } else if (type == "Digits") {
      const bool each = flag(step, "individual_digits", false, where);
      out_.pre_tokenizer_.add(
          {.kind = SplitRule::Kind::number_groups, .digits_max = each ? 1 : std::numeric_limits<int>::max()});
    } else if (type == "Split") {
      read_split(step, where);
    } else {
      refuse(where, format("is {}; supported are Split, Digits, ByteLevel and Sequence", type));
    }
  }

  void read_split(const object& step, const std::string& where) {
    const object& pattern = as_object(member(step, "pattern", where + ".pattern"), where + ".pattern");
    const value* regex = pattern.if_contains("Regex");
    if (regex == nullptr) refuse(where + ".pattern", "has no Regex; a split at plain text is not supported");
    const std::string_view expression = as_string(*regex, where + ".pattern.Regex");
    const auto rule = known_split_rule(expression);
    if (!rule) {
      fail_with_hint(Code::bad_checkpoint, "Report the expression; it needs a scanner of its own.",
                     "{}: {}.pattern is an expression this program does not know: {}", name_, where,
                     expression);
    }
    const std::string_view behavior =
        as_string(member(step, "behavior", where + ".behavior"), where + ".behavior");
    const bool invert = flag(step, "invert", false, where);
    // The rules below leave no gaps, so keeping the matches alone keeps everything.
    const bool covers_all = rule->kind == SplitRule::Kind::words ||
                            rule->kind == SplitRule::Kind::cased_words || rule->kind == SplitRule::Kind::gpt2;
    const bool keeps_all =
        (behavior == "Isolated" && !invert) || (behavior == "Removed" && invert && covers_all);
    if (!keeps_all) {
      refuse(where, format("has behavior {} with invert {}, which is not supported", behavior, invert));
    }
    out_.pre_tokenizer_.add(*rule);
  }

  void read_model(const object& model) {
    const std::string_view type = as_string(member(model, "type", "model.type"), "model.type");
    if (type != "BPE") refuse("model.type", format("is {}; only BPE is supported", type));
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      const value* text = model.if_contains(key);
      const bool empty =
          text == nullptr || text->is_null() || (text->is_string() && text->get_string().empty());
      if (!empty) refuse(format("model.{}", key), "is not empty, which is not supported");
    }
    if (const value* dropout = model.if_contains("dropout"); dropout != nullptr && !dropout->is_null()) {
      if (!dropout->is_number() || dropout->to_number<double>() != 0)
        refuse("model.dropout", "is not null or 0");
    }
    if (flag(model, "byte_fallback", false, "model"))
      refuse("model.byte_fallback", "is true, which is not supported");
    out_.bpe_.whole_pieces_first = flag(model, "ignore_merges", false, "model");
    read_vocabulary(as_object(member(model, "vocab", "model.vocab"), "model.vocab"));
  }

  void read_vocabulary(const object& vocabulary) {
    std::int64_t largest = -1;
    for (const auto& entry : vocabulary) {
      largest = std::max<std::int64_t>(largest, as_id(entry.value(), "an id of model.vocab"));
    }
    out_.tokens_.resize(static_cast<std::size_t>(largest + 1));
    std::vector<bool> taken(out_.tokens_.size());
    out_.bpe_.byte_ids.fill(-1);
    id_of_.reserve(vocabulary.size());
    if (out_.bpe_.whole_pieces_first) out_.bpe_.whole_pieces.reserve(vocabulary.size());
    for (const auto& entry : vocabulary) {
      const std::string_view written(entry.key().data(), entry.key().size());
      const TokenId id = as_id(entry.value(), "an id of model.vocab");
      if (taken[static_cast<std::size_t>(id)])
        refuse("model.vocab", format("gives id {} twice, again to {}", id, written));
      taken[static_cast<std::size_t>(id)] = true;
      bool all_bytes = false;
      std::string bytes = alphabet_.bytes_of(written, &all_bytes);
      id_of_.emplace(written, id);
      if (all_bytes && bytes.size() == 1) out_.bpe_.byte_ids[static_cast<unsigned char>(bytes[0])] = id;
      if (all_bytes && out_.bpe_.whole_pieces_first) out_.bpe_.whole_pieces.emplace(bytes, id);
      out_.tokens_[static_cast<std::size_t>(id)].bytes = std::move(bytes);
    }
    for (int byte = 0; byte < 256; ++byte) {
      if (out_.bpe_.byte_ids[static_cast<std::size_t>(byte)] < 0) {
        refuse("model.vocab",
               format("has no token for the single byte {}; text with it would be lost", byte));
      }
    }
  }

  // Written as text a special token is the characters it is; no piece may become it by another way.
  void drop_special_pieces() {
    std::erase_if(out_.bpe_.whole_pieces,
                  [this](const auto& piece) { return out_.is_special(piece.second); });
  }

  // The two parts of a merge: ["Ġ", "t"] or "Ġ t".
  std::pair<std::string_view, std::string_view> merge_parts(const value& merge, std::size_t rank) const {
    if (merge.is_array() && merge.get_array().size() == 2 && merge.get_array()[0].is_string() &&
        merge.get_array()[1].is_string()) {
      return {view(merge.get_array()[0].get_string()), view(merge.get_array()[1].get_string())};
    }
    if (merge.is_string()) {
      const std::string_view text = view(merge.get_string());
      const std::size_t space = text.find(' ');
      if (space != std::string_view::npos && text.find(' ', space + 1) == std::string_view::npos) {
        return {text.substr(0, space), text.substr(space + 1)};
      }
    }
    refuse(format("model.merges[{}]", rank), "is not a pair of tokens");
  }

  TokenId merge_token(std::string_view written, std::size_t rank) const {
    const auto found = id_of_.find(written);
    if (found == id_of_.end())
      refuse(format("model.merges[{}]", rank), format("names {}, which is no token", written));
    return found->second;
  }

  void read_merges(const array& merges) {
    out_.bpe_.merges.reserve(merges.size());
    std::string joined;
    std::size_t rank = 0;
    for (const value& merge : merges) {
      const auto [left, right] = merge_parts(merge, rank);
      joined.assign(left).append(right);
      const TokenId merged = merge_token(joined, rank);
      const TokenId left_id = merge_token(left, rank), right_id = merge_token(right, rank);
      if (!out_.is_special(merged))
        out_.bpe_.merges.insert(left_id, right_id, {static_cast<std::uint32_t>(rank), merged});
      ++rank;
    }
  }

  void read_added_tokens(const value* list) {
    if (list == nullptr || list->is_null()) return;
    std::size_t i = 0;
    for (const value& item : as_array(*list, "added_tokens")) {
      const std::string where = format("added_tokens[{}]", i++);
      const object& entry = as_object(item, where);
      AddedToken token;
      token.id = as_id(member(entry, "id", where + ".id"), where + ".id");
      token.content =
          std::string(as_string(member(entry, "content", where + ".content"), where + ".content"));
      token.strip_left = flag(entry, "lstrip", false, where);
      token.strip_right = flag(entry, "rstrip", false, where);
      token.special = flag(entry, "special", false, where);
      token.normalized = flag(entry, "normalized", !token.special, where);
      if (token.content.empty()) refuse(where, "has no content");
      if (flag(entry, "single_word", false, where)) refuse(where, "has single_word, which is not supported");
      if (!added_.insert(token.content).second) refuse(where, format("repeats {}", token.content));
      add_token(std::move(token));
    }
  }

  void add_token(AddedToken token) {
    const auto index = static_cast<std::size_t>(token.id);
    if (index >= out_.tokens_.size()) out_.tokens_.resize(index + 1);
    out_.tokens_[index] = {alphabet_.bytes_of(token.content), token.special};
    const int token_index = static_cast<int>(out_.added_tokens_.size());
    if (token.normalized) {
      out_.normalized_special_ = out_.normalized_special_ || token.special;
      out_.normalized_finder_.add(out_.nfc_ ? to_nfc(token.content) : token.content, token_index);
    } else {
      out_.raw_finder_.add(token.content, token_index);
    }
    out_.added_tokens_.push_back(std::move(token));
  }

  void read_post_processor(const value* item, const std::string& where) {
    if (item == nullptr || item->is_null()) return;
    const std::string type = type_of(*item, where);
    const object& step = item->get_object();
    if (type == "ByteLevel") return;  // trims offsets, which are not used here
    if (type == "Sequence") {
      std::size_t i = 0;
      for (const value& inner : as_array(member(step, "processors", where + ".processors"), where)) {
        read_post_processor(&inner, format("{}[{}]", where, i++));
      }
    } else if (type == "TemplateProcessing") {
      read_template(step, where);
    } else {
      refuse(where, format("is {}; supported are ByteLevel, TemplateProcessing and Sequence", type));
    }
  }

  void read_template(const object& step, const std::string& where) {
    const object& special = as_object(member(step, "special_tokens", where + ".special_tokens"), where);
    bool behind = false;
    for (const value& part : as_array(member(step, "single", where + ".single"), where + ".single")) {
      const object& entry = as_object(part, where + ".single");
      if (entry.if_contains("Sequence") != nullptr) {
        if (behind) refuse(where + ".single", "uses the text twice");
        behind = true;
        continue;
      }
      const object& token =
          as_object(member(entry, "SpecialToken", where + ".single.SpecialToken"), where + ".single");
      const std::string_view id =
          as_string(member(token, "id", where + ".single.SpecialToken.id"), where + ".single");
      const object& known =
          as_object(member(special, id, where + ".special_tokens"), where + ".special_tokens");
      for (const value& number : as_array(member(known, "ids", where + ".special_tokens.ids"), where)) {
        (behind ? out_.after_ : out_.before_).push_back(as_id(number, where + ".special_tokens.ids"));
      }
    }
    if (!behind) refuse(where + ".single", "does not use the text");
  }

  std::string name_;
  Tokenizer out_;
  bool byte_level_ = false;
  ByteAlphabet alphabet_;
  std::unordered_set<std::string, SeededHash, std::equal_to<>> added_;
  // By the token as written; points into the document.
  std::unordered_map<std::string_view, TokenId, SeededHash, std::equal_to<>> id_of_;
};

Tokenizer Tokenizer::parse(std::string_view json, std::string_view name) {
  const value document =
      fourfold::json::parse(json, name, {.text_bytes_max = kFileBytesMax, .depth_max = kDepthMax});
  return TokenizerReader(name).read(document);
}

Tokenizer Tokenizer::load(const std::filesystem::path& path) {
  return parse(fourfold::json::read_text_file(path, kFileBytesMax), path.string());
}

}  // namespace fourfold::text
