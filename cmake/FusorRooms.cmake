# Rooms: one static library a folder, so that the layering shows in what links against what; fusor is all of them.
include(PublicHeaders)

# fusor_room(NAME LIBRARIES ... PRIVATE_LIBRARIES ...): every .cpp below NAME/.
function(fusor_room name)
  cmake_parse_arguments(ROOM "" "" "LIBRARIES;PRIVATE_LIBRARIES" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${name}/*.cpp)
  if(NOT sources)
    add_library(fusor_${name} INTERFACE)
    target_link_libraries(fusor_${name} INTERFACE ${ROOM_LIBRARIES})
    return()
  endif()
  add_library(fusor_${name} STATIC ${sources})
  set_target_properties(fusor_${name} PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_include_directories(fusor_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
  target_link_libraries(fusor_${name} PUBLIC ${ROOM_LIBRARIES} PRIVATE ${ROOM_PRIVATE_LIBRARIES})
  fusor_flags(fusor_${name})
  fusor_units(fusor_${name})
  set_property(GLOBAL APPEND PROPERTY FUSOR_ROOMS fusor_${name})
endfunction()

# What every target of ours is compiled with. Targets that do not link fmt cannot use the precompiled headers and call
# fusor_warnings alone.
function(fusor_flags target)
  fusor_use_precompiled(${target})
  fusor_warnings(${target})
endfunction()

# Warnings and sanitizers.
function(fusor_warnings target)
  # g++ 12 warns of overlapping copies inside std::string + where there are none (GCC bug 105329). From 13 on it takes a
  # reference into a document, returned by a short-lived reader, for one into the reader.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
    -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor $<$<BOOL:${FUSOR_WERROR}>:-Werror>)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
    target_compile_options(${target} PRIVATE -Wno-dangling-reference)
  endif()
  if(FUSOR_SANITIZE)
    # Checks of pointers at every access double the time of a build; AddressSanitizer stops at what they would report.
    target_compile_options(${target} PRIVATE -fsanitize=${FUSOR_SANITIZE} -fno-sanitize-recover=all
      -fno-sanitize=null,vptr,object-size,alignment -fno-omit-frame-pointer)
    target_link_options(${target} PUBLIC -fsanitize=${FUSOR_SANITIZE})
  endif()
endfunction()

# The sources below `root` on which the text of kernels depends besides the device files: those that write it, and the
# nouns whose words it has.
function(fusor_text_writers out root)
  file(GLOB_RECURSE files CONFIGURE_DEPENDS RELATIVE ${root} ${root}/codegen/text/*.h ${root}/codegen/text/*.cpp)
  set(${out} ${files} core/attributes.cpp core/attributes.h core/data_type.cpp core/data_type.h core/expr.cpp
    core/expr.h core/lowered.h core/ops/pointwise.cpp core/ops/pointwise.h PARENT_SCOPE)
endfunction()

# Writes the tables of embedded device files, device profiles and pages, and adds them to their rooms. Of the sources that
# write the text of kernels only the hash is used: it is a part of every kernel's key.
function(fusor_embed_device_files)
  file(GLOB_RECURSE device_files CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
    ${PROJECT_SOURCE_DIR}/codegen/device/*.cuh ${PROJECT_SOURCE_DIR}/core/*.def)
  file(GLOB profiles CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/heuristics/devices/*.json)
  file(GLOB pages CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/backend/report/*.html)
  fusor_text_writers(text_writers ${PROJECT_SOURCE_DIR})
  foreach(table device_files profiles pages text_writers)
    set(output ${PROJECT_BINARY_DIR}/embedded_${table}.inc)
    set(inputs ${${table}})
    list(TRANSFORM inputs PREPEND ${PROJECT_SOURCE_DIR}/)
    add_custom_command(OUTPUT ${output}
      COMMAND ${CMAKE_COMMAND} "-DFILES=${${table}}" -DROOT=${PROJECT_SOURCE_DIR} -DOUTPUT=${output}
              -P ${PROJECT_SOURCE_DIR}/cmake/Embed.cmake
      DEPENDS ${inputs} ${PROJECT_SOURCE_DIR}/cmake/Embed.cmake VERBATIM)
    add_custom_target(fusor_embed_${table} DEPENDS ${output})
  endforeach()
endfunction()

# Writes the public headers as they are installed to `folder`, when one of them has changed.
function(fusor_written_headers folder)
  fusor_public_headers(headers ${PROJECT_SOURCE_DIR})
  # Named, so that what includes them is compiled again in the same run that writes them.
  list(TRANSFORM headers PREPEND ${folder}/fusor/ OUTPUT_VARIABLE written)
  list(TRANSFORM headers PREPEND ${PROJECT_SOURCE_DIR}/)
  set(script ${PROJECT_SOURCE_DIR}/cmake/PublicHeaders.cmake)
  add_custom_command(OUTPUT ${folder}.stamp BYPRODUCTS ${folder}/fusor.h ${written}
    COMMAND ${CMAKE_COMMAND} -DROOT=${PROJECT_SOURCE_DIR} -DOUTPUT=${folder} -P ${script}
    COMMAND ${CMAKE_COMMAND} -E touch ${folder}.stamp
    DEPENDS ${headers} ${script} VERBATIM)
  add_custom_target(fusor_headers DEPENDS ${folder}.stamp)
endfunction()

# The libraries that are installed, libfusor.so (fusor) and libfusor.a (fusor_static): both are all rooms' objects.
function(fusor_libraries)
  fusor_written_headers(${PROJECT_BINARY_DIR}/include)
  get_property(rooms GLOBAL PROPERTY FUSOR_ROOMS)
  list(TRANSFORM rooms REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>" OUTPUT_VARIABLE objects)
  add_library(fusor SHARED ${objects})
  add_library(fusor_static STATIC ${objects})
  foreach(library fusor fusor_static)
    add_library(fusor::${library} ALIAS ${library})
    add_dependencies(${library} fusor_headers)
    set_target_properties(${library} PROPERTIES LINKER_LANGUAGE CXX OUTPUT_NAME fusor)
    target_include_directories(${library} PUBLIC $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>
      $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    target_compile_features(${library} PUBLIC cxx_std_20)
  endforeach()
  target_link_libraries(fusor_static PUBLIC fmt::fmt Threads::Threads ${CMAKE_DL_LIBS})
  target_link_libraries(fusor PRIVATE fmt::fmt Threads::Threads ${CMAKE_DL_LIBS})
  set(exports ${PROJECT_SOURCE_DIR}/cmake/exports.map)
  set_target_properties(fusor PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
    LINK_DEPENDS ${exports})
  target_link_options(fusor PRIVATE -Wl,--version-script=${exports})
  if(FUSOR_SANITIZE)
    target_link_options(fusor PRIVATE -fsanitize=${FUSOR_SANITIZE})
  else()
    target_link_options(fusor PRIVATE -Wl,--no-undefined)
  endif()
  fusor_room_settings()
endfunction()

# What only some rooms need: the embedded tables, CUDA's headers, and the system's loader of libraries.
function(fusor_room_settings)
  foreach(table device_files profiles pages text_writers)
    foreach(room codegen backend)
      if(TARGET fusor_${room})
        get_target_property(kind fusor_${room} TYPE)
        if(kind STREQUAL STATIC_LIBRARY)
          add_dependencies(fusor_${room} fusor_embed_${table})
          target_include_directories(fusor_${room} PRIVATE ${PROJECT_BINARY_DIR})
        endif()
      endif()
    endforeach()
  endforeach()
  if(FUSOR_CUDA_INCLUDE_DIRS)
    target_include_directories(fusor_codegen SYSTEM PRIVATE ${FUSOR_CUDA_INCLUDE_DIRS})
    target_compile_definitions(fusor_codegen PRIVATE FUSOR_WITH_CUDA FUSOR_CUDA_FOUND_ROOT="${FUSOR_CUDA_FOUND_ROOT}")
  endif()
  target_link_libraries(fusor_codegen PRIVATE ${CMAKE_DL_LIBS})
endfunction()
