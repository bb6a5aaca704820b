// Owns the identifiers made of fusions' names, and the renaming of symbols and sections in cubins, which are
// ELF files.
#include "codegen/text/entry_name.h"

#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <unordered_map>
#include <vector>

namespace fusor {

namespace {

constexpr size_t kLongestName = 120;

bool is_alphanumeric(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

// Letters and digits; what lies between them is one underscore.
std::string identifier(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (is_alphanumeric(c))
      result += c;
    else if (!result.empty() && result.back() != '_')
      result += '_';
  }
  while (!result.empty() && result.back() == '_') result.pop_back();
  return result;
}

// Parts of a composite are called after it: norm1.2 is one of norm1.
std::string_view without_part(std::string_view op) {
  const size_t dot = op.rfind('.');
  const bool is_part = dot != std::string_view::npos && dot + 1 < op.size() &&
                       std::ranges::all_of(op.substr(dot + 1), [](char c) { return c >= '0' && c <= '9'; });
  return is_part ? without_part(op.substr(0, dot)) : op;
}

std::vector<std::string> words_of(std::span<const std::string> ops) {
  std::vector<std::string> words;
  for (const std::string& op : ops) {
    std::string word = identifier(without_part(op));
    if (!word.empty() && std::ranges::find(words, word) == words.end()) words.push_back(std::move(word));
  }
  return words;
}

// The words, as many as fit into `room` characters, and how many more there are.
std::string words_within(std::span<const std::string> words, size_t room) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string more = fmt::format("_and_{}_more", words.size() - i);
    const size_t reserved = i + 1 < words.size() ? more.size() : 0;
    if (text.size() + 1 + words[i].size() + reserved > room)
      return i == 0 ? words[0].substr(0, room) : text + more;
    if (i > 0) text += '_';
    text += words[i];
  }
  return text;
}

}  // namespace

std::string kernel_name(std::span<const std::string> ops, std::string_view entry, size_t alike) {
  const std::string end = (alike > 0 ? fmt::format("_and_{}_alike__", alike) : "__").append(entry);
  const std::vector<std::string> words = words_of(ops);
  constexpr std::string_view kFirst = "op_";  // an identifier begins with a letter
  std::string name =
      words_within(words, kLongestName - kFirst.size() - std::min(end.size(), kLongestName / 2));
  if (name.empty() || (name.front() >= '0' && name.front() <= '9')) name.insert(0, kFirst);
  return name + end;
}

namespace {

// Longer names of sections are none of NVRTC's; each renamed one is written anew, which a hostile file could
// make many of.
constexpr size_t kLongestSection = 256;
constexpr uint16_t kCudaMachine = 190;  // EM_CUDA, which older headers lack

template <class T>
T read_at(std::string_view bytes, uint64_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

template <class T>
void write_at(std::string& bytes, uint64_t at, const T& value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

bool is_within(std::string_view bytes, uint64_t at, uint64_t size) {
  return at <= bytes.size() && size <= bytes.size() - at;
}

// A table of strings, and what is appended to it.
class Strings {
 public:
  bool open(std::string_view bytes, const Elf64_Shdr& section) {
    if (section.sh_type != SHT_STRTAB || section.sh_size == 0 ||
        !is_within(bytes, section.sh_offset, section.sh_size))
      return false;
    text_ = bytes.substr(section.sh_offset, section.sh_size);
    return text_.back() == '\0';
  }
  // Empty also where there is no such place. Valid until something is appended.
  std::string_view at(uint32_t offset) const {
    if (offset >= text_.size()) return {};
    return {text_.c_str() + offset};
  }
  uint32_t append(std::string_view name) {
    const auto [place, is_new] =
        appended_.try_emplace(std::string(name), static_cast<uint32_t>(text_.size()));
    if (is_new) {
      text_ += name;
      text_ += '\0';
    }
    return place->second;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::unordered_map<std::string, uint32_t> appended_;
};

// A cubin of one kernel while it is given another name. Whatever is not as NVRTC makes it ends the attempt.
class Renaming {
 public:
  Renaming(std::string_view cubin, std::string_view entry, std::string_view name)
      : cubin_(cubin), entry_(entry), name_(name), ending_(fmt::format(".{}", entry)) {}

  std::optional<std::string> result() {
    if (!read_headers() || !read_tables()) return std::nullopt;
    out_ = cubin_;
    if (!rename_sections() || !rename_symbols()) return std::nullopt;
    append_tables();
    return std::move(out_);
  }

 private:
  bool read_headers() {
    if (cubin_.size() < sizeof header_) return false;
    header_ = read_at<Elf64_Ehdr>(cubin_, 0);
    const bool is_cubin = std::memcmp(header_.e_ident, ELFMAG, SELFMAG) == 0 &&
                          header_.e_ident[EI_CLASS] == ELFCLASS64 &&
                          header_.e_ident[EI_DATA] == ELFDATA2LSB && header_.e_machine == kCudaMachine;
    if (!is_cubin || header_.e_ehsize != sizeof(Elf64_Ehdr) || header_.e_shentsize != sizeof(Elf64_Shdr) ||
        (header_.e_phnum > 0 && header_.e_phentsize != sizeof(Elf64_Phdr)))
      return false;
    // Larger counts are written elsewhere, which no cubin of one kernel needs.
    if (header_.e_shnum == 0 || header_.e_shnum >= SHN_LORESERVE || header_.e_phnum >= PN_XNUM) return false;
    return read_list(sections_, header_.e_shoff, header_.e_shnum) &&
           read_list(segments_, header_.e_phoff, header_.e_phnum);
  }

  template <class T>
  bool read_list(std::vector<T>& list, uint64_t at, size_t count) const {
    if (!is_within(cubin_, at, count * sizeof(T))) return false;
    list.resize(count);
    for (size_t i = 0; i < count; ++i) list[i] = read_at<T>(cubin_, at + i * sizeof(T));
    return true;
  }

  bool read_tables() {
    const auto is_symbols = [](const Elf64_Shdr& section) { return section.sh_type == SHT_SYMTAB; };
    const auto symbols = std::ranges::find_if(sections_, is_symbols);
    if (symbols == sections_.end() || std::ranges::count_if(sections_, is_symbols) != 1) return false;
    symbols_ = *symbols;
    section_strings_at_ = header_.e_shstrndx;
    symbol_strings_at_ = symbols_.sh_link;
    return symbols_.sh_entsize == sizeof(Elf64_Sym) && symbols_.sh_size % sizeof(Elf64_Sym) == 0 &&
           is_within(cubin_, symbols_.sh_offset, symbols_.sh_size) &&
           section_strings_at_ < sections_.size() && symbol_strings_at_ < sections_.size() &&
           section_strings_at_ != symbol_strings_at_ &&
           section_strings_.open(cubin_, sections_[section_strings_at_]) &&
           symbol_strings_.open(cubin_, sections_[symbol_strings_at_]);
  }

  // ".text.ENTRY" and others that end so.
  bool has_ending(std::string_view name) const {
    return name.size() <= kLongestSection && name.starts_with('.') && name.ends_with(ending_);
  }
  std::string with_other_ending(std::string_view name) const {
    return std::string(name.substr(0, name.size() - entry_.size())).append(name_);
  }

  // Whether a section says that it is about the kernel's code, directly or through the section that it
  // relocates.
  bool is_of_kernel(size_t i, size_t code) const {
    const Elf64_Shdr& section = sections_[i];
    if (i == code || section.sh_info == code) return true;
    const bool relocates = section.sh_type == SHT_REL || section.sh_type == SHT_RELA;
    return relocates && section.sh_info < sections_.size() && sections_[section.sh_info].sh_info == code;
  }

  bool rename_sections() {
    const std::string code_name = ".text" + ending_;
    std::vector<size_t> codes;
    for (size_t i = 0; i < sections_.size(); ++i) {
      const std::string_view name = section_strings_.at(sections_[i].sh_name);
      if (name.starts_with(".text.")) codes.push_back(i);
      // Newer generations keep a second form of the code, with names of its own.
      if (name.starts_with(".nv.merc") || name.starts_with(".nv.capmerc")) return false;
    }
    if (codes.size() != 1 || section_strings_.at(sections_[codes[0]].sh_name) != code_name) return false;
    is_renamed_.assign(sections_.size(), false);
    for (size_t i = 0; i < sections_.size(); ++i) {
      const std::string_view name = section_strings_.at(sections_[i].sh_name);
      if (!has_ending(name) || !is_of_kernel(i, codes[0])) continue;
      sections_[i].sh_name = section_strings_.append(with_other_ending(name));
      is_renamed_[i] = true;
    }
    return true;
  }

  bool rename_symbols() {
    int kernels = 0;
    for (uint64_t at = 0; at < symbols_.sh_size; at += sizeof(Elf64_Sym)) {
      auto symbol = read_at<Elf64_Sym>(cubin_, symbols_.sh_offset + at);
      const std::string_view name = symbol_strings_.at(symbol.st_name);
      if (name == name_) return false;
      const bool is_section = ELF64_ST_TYPE(symbol.st_info) == STT_SECTION && has_ending(name) &&
                              symbol.st_shndx < sections_.size() && is_renamed_[symbol.st_shndx];
      const bool is_kernel = name == entry_;
      if (is_kernel && (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || ++kernels > 1)) return false;
      if (!is_kernel && !is_section) continue;
      symbol.st_name = symbol_strings_.append(is_kernel ? std::string(name_) : with_other_ending(name));
      write_at(out_, symbols_.sh_offset + at, symbol);
    }
    return kernels == 1;
  }

  // Where the next bytes go.
  uint64_t append(std::string_view bytes, size_t alignment) {
    out_.resize((out_.size() + alignment - 1) / alignment * alignment);
    const uint64_t at = out_.size();
    out_ += bytes;
    return at;
  }
  template <class T>
  uint64_t append_list(const std::vector<T>& list) {
    return append({reinterpret_cast<const char*>(list.data()), list.size() * sizeof(T)}, alignof(T));
  }

  void append_strings(size_t section, const Strings& strings) {
    sections_[section].sh_offset = append(strings.text(), 1);
    sections_[section].sh_size = strings.text().size();
  }

  // Headers come last, as they do in cubins: whoever is not told the size of one looks for its end there.
  void append_tables() {
    append_strings(section_strings_at_, section_strings_);
    append_strings(symbol_strings_at_, symbol_strings_);
    const uint64_t old_segments = header_.e_phoff;
    header_.e_shoff = append_list(sections_);
    header_.e_phoff = append({}, alignof(Elf64_Phdr));
    for (Elf64_Phdr& segment : segments_)  // of the segments' headers themselves
      if (segment.p_offset == old_segments && segment.p_filesz == segments_.size() * sizeof segment)
        segment.p_offset = header_.e_phoff;
    append_list(segments_);
    write_at(out_, 0, header_);
  }

  std::string_view cubin_, entry_, name_;
  std::string ending_;
  Elf64_Ehdr header_{};
  std::vector<Elf64_Shdr> sections_;
  std::vector<Elf64_Phdr> segments_;
  std::vector<bool> is_renamed_;  // per section
  Elf64_Shdr symbols_{};
  size_t section_strings_at_ = 0, symbol_strings_at_ = 0;
  Strings section_strings_, symbol_strings_;
  std::string out_;
};

}  // namespace

std::optional<std::string> with_entry_named(std::string_view cubin, std::string_view entry,
                                            std::string_view name) {
  if (entry.empty() || name.empty() || name.find('\0') != std::string_view::npos) return std::nullopt;
  return Renaming(cubin, entry, name).result();
}

}  // namespace fusor
