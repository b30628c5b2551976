//! Goal: options are checked, and mean what they say. Method: right and wrong ones.

use pando_base::{DType, Tensor};
use pando_graph::{ConstData, Module};
use pando_zoo::{Options, Weights, build, describe, names, parse, weights};
use std::collections::BTreeMap;

fn message(name: &str, options: &Options) -> String {
    build(name, options).expect_err("a mistake").to_string()
}

#[test]
fn mistakes_are_named() {
    let sized = |name, size| Options::default().with_size(name, size);
    let unknown = message("resnet51", &Options::default());
    assert!(unknown.contains("resnet51") && unknown.contains("resnet50") && unknown.contains("gpt2"));
    let error = message("resnet50", &sized("sequence", 3));
    assert!(error.contains("zoo:resnet50") && error.contains("batch, image"), "{error}");
    assert!(message("bert-base", &sized("sequence", 513)).contains("1 to 512"));
    assert!(message("bert-base", &sized("batch", 0)).contains("batch is 0"));
    assert!(message("resnet50", &sized("batch", u64::MAX)).contains("batch"));
    assert!(message("vit-b16", &sized("image", 225)).contains("a multiple of 16"));
    let int = Options { dtype: DType::I8, ..Options::default() };
    assert!(message("resnet50", &int).contains("i8"));
}

#[test]
fn extreme_sizes_are_errors_or_models() {
    for name in names() {
        for &(size, _) in describe(name).unwrap().sizes {
            for value in [1, 2, 3, 1 << 24] {
                // Whatever the answer is, it is no panic.
                let _ = build(name, &Options::default().with_size(size, value));
            }
        }
    }
}

#[test]
fn text_form() {
    let (name, options) = parse("resnet50?batch=16&image=256&dtype=f16&seed=9").expect("right");
    assert_eq!((name, options.dtype), ("resnet50", DType::F16));
    assert_eq!(options.sizes, [("batch".to_string(), 16), ("image".to_string(), 256)]);
    assert!(matches!(options.weights, Weights::Seeded(9)));
    assert!(parse("resnet50").expect("right").1.sizes.is_empty());
    for wrong in ["a?batch", "a?batch=x", "a?batch=-1", "a?dtype=f33", "a?seed=1.5"] {
        assert!(parse(wrong).expect_err("wrong").to_string().contains("NAME?batch=16"), "{wrong}");
    }
}

fn const_data<'a>(module: &'a Module, name: &str) -> &'a ConstData {
    &module.consts.values().find(|constant| constant.name == name).expect("a weight").data
}

#[test]
fn seeds_give_other_weights_by_name() {
    let seeded = |seed| Options { weights: Weights::Seeded(seed), ..Options::default() };
    let (a, b) = (build("resnet18", &seeded(1)).unwrap(), build("resnet18", &seeded(2)).unwrap());
    assert_ne!(const_data(&a, "fc.weight"), const_data(&b, "fc.weight"));
    assert_ne!(const_data(&a, "layer1.0.conv1.weight"), const_data(&a, "layer1.0.conv2.weight"));
    // The same weight whatever else there is.
    let large = build("resnet18", &seeded(1).with_size("batch", 2)).unwrap();
    assert_eq!(const_data(&a, "fc.weight"), const_data(&large, "fc.weight"));
}

#[test]
fn given_weights_are_used() {
    let list = weights("resnet18", &Options::default()).unwrap();
    let mut map: BTreeMap<String, Tensor> = BTreeMap::new();
    for (index, weight) in list.iter().enumerate() {
        let mut tensor = Tensor::zeros(DType::F32, weight.shape.clone());
        tensor.set_f64(0, index as f64 + 0.5);
        map.insert(weight.name.clone(), tensor);
    }
    map.insert("bn1.num_batches_tracked".into(), Tensor::scalar(DType::I64, 3.0));
    let given = |map: &BTreeMap<String, Tensor>| Options {
        weights: Weights::Given(map.clone()),
        dtype: DType::F16,
        ..Options::default()
    };
    let module = build("resnet18", &given(&map)).unwrap();
    for (index, weight) in list.iter().enumerate() {
        let ConstData::Dense(tensor) = const_data(&module, &weight.name) else { panic!("{}", weight.name) };
        assert_eq!((tensor.dtype(), tensor.get_f64(0)), (DType::F16, index as f64 + 0.5));
    }
    map.insert("fc.bias".into(), Tensor::zeros(DType::F32, [999]));
    let wrong = message("resnet18", &given(&map));
    assert!(wrong.contains("fc: the weight fc.bias has shape [999]"), "{wrong}");
    map.retain(|name, _| name.starts_with("layer"));
    let missing = message("resnet18", &given(&map));
    assert!(missing.contains("conv1.weight") && missing.contains("more"), "{missing}");
}

#[test]
fn everything_is_f16_in_an_f16_model() {
    for name in names() {
        let module = build(name, &Options { dtype: DType::F16, ..Options::default() }).expect("builds");
        let list = weights(name, &Options::default()).unwrap();
        let named = |name: &str| list.iter().any(|weight| weight.name == name);
        for constant in module.consts.values().filter(|constant| named(&constant.name)) {
            assert_eq!(constant.dtype, DType::F16, "{name}: {}", constant.name);
        }
        let main = &module.funcs[module.main().unwrap()];
        for ty in main.param_types().into_iter().chain(main.result_types()) {
            assert_ne!(ty.dtype, DType::F32, "{name}");
        }
    }
}
