#include "text/jinja/value.h"

#include <algorithm>
#include <cmath>

#include "base/format.h"

namespace fourfold::text::jinja {

namespace {

int checked_depth(int depth) {
  if (depth > kValueDepthMax)
    throw TemplateFault(format("a value nests deeper than {} levels", kValueDepthMax));
  return depth;
}

// Beyond any budget; sums of such stay in range.
constexpr std::size_t kWeightMax = std::size_t{1} << 60;

std::size_t sum_of_weights(std::size_t a, std::size_t b) { return std::min(kWeightMax, a + b); }

int sign_of(const WideInteger& number) { return number.digits.starts_with('-') ? -1 : 1; }

int compare_wide(const WideInteger& left, const WideInteger& right) {
  const int sign = sign_of(left);
  if (sign != sign_of(right)) return sign;
  if (left.digits.size() != right.digits.size())
    return left.digits.size() < right.digits.size() ? -sign : sign;
  const int order = left.digits.compare(right.digits);
  return order < 0 ? -sign : order > 0 ? sign : 0;
}

// No integer is rounded first, but one beyond 64 bits against a float: there its nearest float is compared.
int compare_numbers(const Value& left, const Value& right) {
  const auto sign = [](auto a, auto b) { return a < b ? -1 : a > b ? 1 : 0; };
  const WideInteger *wide_left = left.wide(), *wide_right = right.wide();
  if (wide_left && wide_right) return compare_wide(*wide_left, *wide_right);
  // It is beyond all integers of 64 bits, on the side of its sign.
  if (wide_left && !right.is_real()) return sign_of(*wide_left);
  if (wide_right && !left.is_real()) return -sign_of(*wide_right);
  if (!left.is_real() && !right.is_real()) return sign(left.integer(), right.integer());
  if (left.is_real() && right.is_real()) return sign(left.real(), right.real());
  if (left.is_real()) return -compare_numbers(right, left);
  const double whole = std::floor(right.real());
  if (whole >= 0x1p63) return -1;
  if (whole < -0x1p63) return 1;
  const auto floor = static_cast<std::int64_t>(whole);
  return left.integer() != floor ? sign(left.integer(), floor) : (right.real() > whole ? -1 : 0);
}

bool is_nan(const Value& value) { return value.is_real() && std::isnan(value.real()); }

bool is_list_like(const Sequence& sequence) {
  return sequence.kind == Sequence::Kind::list || sequence.kind == Sequence::Kind::tuple ||
         sequence.kind == Sequence::Kind::range;
}

bool equal_sequences(const Sequence& left, const Sequence& right) {
  if (&left == &right) return true;
  return is_list_like(left) && left.kind == right.kind &&
         std::equal(left.items.begin(), left.items.end(), right.items.begin(), right.items.end(), equal);
}

bool equal_dicts(const Dict& left, const Dict& right) {
  if (left.size() != right.size()) return false;
  return std::ranges::all_of(left.items(), [&right](const auto& item) {
    const Value* other = right.find(item.first);
    return other != nullptr && equal(item.second, *other);
  });
}

}  // namespace

std::ptrdiff_t Dict::place_of(std::string_view key) const {
  if (!text_places_.empty()) {
    const auto found = text_places_.find(key);
    return found == text_places_.end() ? -1 : static_cast<std::ptrdiff_t>(found->second);
  }
  if (text_count_ == 0) return -1;
  for (std::size_t i = 0; i < items_.size(); ++i)
    if (items_[i].first.is_text() && items_[i].first.text() == key) return static_cast<std::ptrdiff_t>(i);
  return -1;
}

std::ptrdiff_t Dict::place_of(const Value& key) const {
  if (key.is_text()) return place_of(std::string_view(key.text()));
  if (text_count_ == items_.size()) return -1;
  for (std::size_t i = 0; i < items_.size(); ++i) {
    if (equal(items_[i].first, key)) return static_cast<std::ptrdiff_t>(i);
  }
  return -1;
}

const Value* Dict::find(const Value& key) const {
  const std::ptrdiff_t place = place_of(key);
  return place < 0 ? nullptr : &items_[static_cast<std::size_t>(place)].second;
}

const Value* Dict::find(std::string_view key) const {
  const std::ptrdiff_t place = place_of(key);
  return place < 0 ? nullptr : &items_[static_cast<std::size_t>(place)].second;
}

// The key's text is shared and never changes, also when the dict is copied.
void Dict::index(std::size_t place) {
  if (items_[place].first.is_text())
    text_places_.emplace(std::string_view(items_[place].first.text()), place);
}

void Dict::set(Value key, Value value) {
  depth_ = checked_depth(std::max({depth_, 1 + key.depth(), 1 + value.depth()}));
  weight_ = sum_of_weights(weight_, sum_of_weights(key.weight(), value.weight()));
  if (const std::ptrdiff_t place = place_of(key); place >= 0) {
    items_[static_cast<std::size_t>(place)].second = std::move(value);
    return;
  }
  text_count_ += key.is_text();
  items_.emplace_back(std::move(key), std::move(value));
  if (text_count_ <= kFew) return;
  if (!text_places_.empty()) return index(items_.size() - 1);
  for (std::size_t i = 0; i < items_.size(); ++i) index(i);
}

Value::Value(Dict dict) : data_(std::make_shared<const Dict>(std::move(dict))) {}

Value Value::list(std::vector<Value> items, Sequence::Kind kind, std::string view_name) {
  int depth = 1;
  std::size_t weight = 1;
  for (const Value& item : items) {
    depth = std::max(depth, 1 + item.depth());
    weight = sum_of_weights(weight, item.weight());
  }
  Value out;
  out.data_ = std::make_shared<const Sequence>(Sequence{.kind = kind,
                                                        .items = std::move(items),
                                                        .depth = checked_depth(depth),
                                                        .weight = weight,
                                                        .view_name = std::move(view_name)});
  return out;
}

Value Value::range(std::int64_t start, std::int64_t stop, std::int64_t step, std::vector<Value> items) {
  auto out = std::make_shared<Sequence>();
  out->kind = Sequence::Kind::range;
  out->items = std::move(items);
  out->weight += out->items.size();
  out->start = start;
  out->stop = stop;
  out->step = step;
  Value value;
  value.data_ = std::shared_ptr<const Sequence>(std::move(out));
  return value;
}

int Value::depth() const {
  if (const Sequence* items = sequence()) return items->depth;
  if (const Dict* members = dict()) return members->depth();
  if (const Callable* function = callable()) return function->depth();
  return 0;
}

std::size_t Value::weight() const {
  if (is_text()) return 1 + text().size();
  if (const Sequence* items = sequence()) return items->weight;
  if (const Dict* members = dict()) return members->weight();
  if (const WideInteger* number = wide()) return 1 + number->digits.size();
  return 1;
}

const Value* Namespace::find(std::string_view name) const {
  const auto found = std::ranges::find(members, name, &std::pair<std::string, Value>::first);
  return found == members.end() ? nullptr : &found->second;
}

void Namespace::set(std::string_view name, Value value) {
  const auto found = std::ranges::find(members, name, &std::pair<std::string, Value>::first);
  if (found != members.end()) {
    found->second = std::move(value);
  } else {
    members.emplace_back(name, std::move(value));
  }
}

bool truth(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (value.is_real()) return value.real() != 0;
  if (value.is_number()) return value.integer() != 0;
  if (value.is_text()) return !value.text().empty();
  if (const Sequence* items = value.sequence()) {
    return items->kind == Sequence::Kind::generator || !items->items.empty();
  }
  if (const Dict* members = value.dict()) return members->size() != 0;
  return true;
}

bool equal(const Value& left, const Value& right) {
  if (left.is_number() && right.is_number()) {
    return !is_nan(left) && !is_nan(right) && compare_numbers(left, right) == 0;
  }
  if (left.is_text() && right.is_text()) return left.text() == right.text();
  if (left.sequence() && right.sequence()) return equal_sequences(*left.sequence(), *right.sequence());
  if (left.dict() && right.dict()) return equal_dicts(*left.dict(), *right.dict());
  if (left.is_undefined() || left.is_none()) return left.data().index() == right.data().index();
  if (left.callable()) return left.callable() == right.callable();
  if (left.names()) return left.names() == right.names();
  return left.loop() != nullptr && left.loop() == right.loop();
}

int compare(const Value& left, const Value& right) {
  if (left.is_number() && right.is_number()) return compare_numbers(left, right);
  // Bytes of UTF-8 stand in the order of their code points.
  if (left.is_text() && right.is_text()) return left.text().compare(right.text());
  const Sequence* a = left.sequence();
  const Sequence* b = right.sequence();
  if (a && b && a->kind == b->kind && (a->kind == Sequence::Kind::list || a->kind == Sequence::Kind::tuple)) {
    for (std::size_t i = 0; i < std::min(a->items.size(), b->items.size()); ++i) {
      if (!equal(a->items[i], b->items[i])) return compare(a->items[i], b->items[i]);
    }
    return a->items.size() < b->items.size() ? -1 : a->items.size() > b->items.size() ? 1 : 0;
  }
  for (const Value* side : {&left, &right}) {
    if (side->is_undefined()) throw TemplateFault(std::get<Undefined>(side->data()).why);
  }
  throw TemplateFault(format("'{}' and '{}' cannot be put in order", type_name(left), type_name(right)));
}

bool is_hashable(const Value& value) {
  const Sequence* items = value.sequence();
  if (items == nullptr) return !value.is_dict();
  if (items->kind == Sequence::Kind::tuple) return std::ranges::all_of(items->items, is_hashable);
  return items->kind != Sequence::Kind::list;
}

std::string_view type_name(const Value& value) {
  if (value.is_undefined()) return "Undefined";
  if (value.is_none()) return "NoneType";
  if (value.is_bool()) return "bool";
  if (value.is_integer() || value.wide() != nullptr) return "int";
  if (value.is_real()) return "float";
  if (value.is_text()) return "str";
  if (value.is_dict()) return "dict";
  if (value.callable()) return "function";
  if (value.names()) return "Namespace";
  if (value.loop()) return "LoopContext";
  switch (value.sequence()->kind) {
    case Sequence::Kind::list: return "list";
    case Sequence::Kind::tuple: return "tuple";
    case Sequence::Kind::range: return "range";
    case Sequence::Kind::generator: return "generator";
    case Sequence::Kind::view: return value.sequence()->view_name;
  }
  return "unknown";
}

}  // namespace fourfold::text::jinja
